// A stand-in for the server, for work on the viewer alone: npm run build && npm run fake-server -- [--port N].
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { generate } from './generate.mjs';

const webDir = join(dirname(fileURLToPath(import.meta.url)), '..');
const out = join(webDir, 'build', 'fake_server.mjs');
generate();
mkdirSync(dirname(out), { recursive: true });
await build({ entryPoints: [join(webDir, 'dev', 'fake_server.ts')], bundle: true, platform: 'node', format: 'esm', target: ['node18'], outfile: out,
  external: ['ws'], logLevel: 'warning' });
const { main } = await import(pathToFileURL(out).href);
await main(process.argv.slice(2), join(webDir, 'dist'));
