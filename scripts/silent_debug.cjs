// Replaces the package `debug` in the bundle: ioredis would print commands with their keys if DEBUG
// is set.
const silent = () => Object.assign(() => {}, { enabled: false });
module.exports = silent;
module.exports.default = silent;
