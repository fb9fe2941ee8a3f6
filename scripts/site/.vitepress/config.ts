/** VitePress looks for its configuration here. */
export { CONFIG as default } from "../config.ts";
