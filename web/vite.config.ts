import { defineConfig, type Plugin } from "vite";

const out = "../src/tiltmeter/view/static";

/** The script that asks for the first data, put before the one that draws it. */
const early: Plugin = {
  name: "early",
  transformIndexHtml(_html, { bundle }) {
    const made = Object.values(bundle ?? {}).find((chunk) => chunk.type === "chunk" && chunk.name === "early");
    return made ? [{ tag: "script", attrs: { type: "module", src: `./${made.fileName}` }, injectTo: "head-prepend" }] : [];
  },
};

/** Two builds from one source: the page, split so that the verdict is painted first, and the report's single script. */
export default defineConfig(({ mode }) => ({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  plugins: mode === "report" ? [] : [early],
  build:
    mode === "report"
      ? {
          outDir: out,
          emptyOutDir: false,
          cssCodeSplit: false,
          modulePreload: false,
          rolldownOptions: {
            input: "src/report.tsx",
            // One script has no other files to find by its own address, and as no module it has no address.
            transform: { define: { "import.meta": "{}" } },
            output: { format: "iife", entryFileNames: "report.js", assetFileNames: "report[extname]" },
          },
        }
      : {
          outDir: out,
          emptyOutDir: true,
          assetsInlineLimit: 0,
          modulePreload: { polyfill: false },
          rolldownOptions: {
            input: { index: "index.html", early: "src/early.ts" },
            output: { entryFileNames: "[name]-[hash].js", chunkFileNames: "[name]-[hash].js", assetFileNames: "[name]-[hash][extname]" },
          },
        },
}));
