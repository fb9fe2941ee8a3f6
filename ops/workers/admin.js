// A second Worker, for operators. Its settings are in admin.wrangler.jsonc.
export { admin as default } from "sallyport/workers";
