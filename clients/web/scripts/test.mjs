// Bundles test/*.test.ts for Node and runs them with its own test runner.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { generate } from './generate.mjs';

const webDir = join(dirname(fileURLToPath(import.meta.url)), '..');
const outDir = join(webDir, 'build', 'test');
generate();
rmSync(outDir, { recursive: true, force: true });
mkdirSync(outDir, { recursive: true });
const names = readdirSync(join(webDir, 'test')).filter((name) => name.endsWith('.test.ts'));
await build({
  entryPoints: names.map((name) => join(webDir, 'test', name)),
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: ['node18'],
  outdir: outDir,
  outExtension: { '.js': '.mjs' },
  external: ['ws'],
  inject: [join(webDir, 'test', 'node_globals.ts')],
  define: { PALPATE_VERSION: '"test"' },
  sourcemap: 'inline',
  logLevel: 'warning',
});
const files = names.map((name) => join(outDir, name.replace(/\.ts$/, '.mjs')));
process.exit(spawnSync(process.execPath, ['--enable-source-maps', '--test', ...files], { stdio: 'inherit' }).status ?? 1);
