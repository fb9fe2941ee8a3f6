/** VitePress's own theme with the fonts of the reader's system, and the colours of the console. */
export { default } from "vitepress/theme-without-fonts";
import "../../style.css";
