// Stands in for the package `debug` in the bundle: ioredis would print commands, keys and all, where DEBUG asks for it.
const silent = () => Object.assign(() => {}, { enabled: false });
module.exports = silent;
module.exports.default = silent;
