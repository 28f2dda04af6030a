// Bundles the viewer into dist/ (or the folder given): index.html and assets/ whose names carry a hash of their content.
import { readFileSync, mkdirSync, rmSync, writeFileSync, copyFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { generate } from './generate.mjs';

const webDir = join(dirname(fileURLToPath(import.meta.url)), '..');
const outDir = resolve(process.argv[2] ?? join(webDir, 'dist'));
const { version } = JSON.parse(readFileSync(join(webDir, 'package.json'), 'utf8'));

generate();
rmSync(outDir, { recursive: true, force: true });
mkdirSync(join(outDir, 'assets'), { recursive: true });
const result = await build({
  entryPoints: { viewer: join(webDir, 'src', 'main.ts') },
  bundle: true,
  format: 'esm',
  target: ['es2022'],
  minify: true,
  sourcemap: process.env.PALPATE_WEB_SOURCEMAP === '1',
  entryNames: 'assets/[name]-[hash]',
  outdir: outDir,
  metafile: true,
  absWorkingDir: webDir,
  define: { PALPATE_VERSION: JSON.stringify(version) },
  legalComments: 'linked',
  logLevel: 'warning',
});
const outputs = Object.keys(result.metafile.outputs).map((path) => basename(path));
const script = outputs.find((name) => name.endsWith('.js'));
const style = outputs.find((name) => name.endsWith('.css'));
const page = readFileSync(join(webDir, 'src', 'index.html'), 'utf8').replace('%SCRIPT%', `assets/${script}`).replace('%STYLE%', `assets/${style}`);
writeFileSync(join(outDir, 'index.html'), page);
copyFileSync(join(webDir, 'src', 'favicon.svg'), join(outDir, 'favicon.svg'));
