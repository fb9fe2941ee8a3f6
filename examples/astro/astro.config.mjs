import node from "@astrojs/node";
import { defineConfig } from "astro/config";

// Every page is made when it is asked for; the server that the build makes listens by itself.
export default defineConfig({ output: "server", adapter: node({ mode: "standalone" }) });
