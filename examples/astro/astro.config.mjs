import node from "@astrojs/node";
import { defineConfig } from "astro/config";

// Pages are rendered for each request. The build makes a server that listens by itself.
export default defineConfig({ output: "server", adapter: node({ mode: "standalone" }) });
