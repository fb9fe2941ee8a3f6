// Taken as it stands, not bundled anew with each build.
export default { serverExternalPackages: ["sallyport"] };
