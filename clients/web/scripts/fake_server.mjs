// A stand-in for the server, for work on the viewer alone: npm run build && npm run fake-server -- [--port N].
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { generate } from './generate.mjs';

const webDir = join(dirname(fileURLToPath(import.meta.url)), '..');

/** The module dev/fake_server.ts. */
export async function bundleFakeServer() {
  const out = join(webDir, 'build', 'fake_server.mjs');
  generate();
  mkdirSync(dirname(out), { recursive: true });
  await build({ entryPoints: [join(webDir, 'dev', 'fake_server.ts')], bundle: true, platform: 'node', format: 'esm', target: ['node18'], outfile: out,
    external: ['ws'], logLevel: 'warning' });
  return import(pathToFileURL(out).href);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await (await bundleFakeServer()).main(process.argv.slice(2), join(webDir, 'dist'));
