// Chromium for tests and pictures, drawing in software, and the server that it looks at.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

export const webDir = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..', 'clients', 'web');
/** For everything: a browser that draws in software on a busy machine. */
export const PATIENCE_MS = 120_000;

/** undefined: none on this machine. */
export const browserPath = [process.env.PALPATE_CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) => path && existsSync(path));

/** `size`: WxH of the window. */
export async function openBrowser(profile, size) {
  const { chromium } = createRequire(join(webDir, 'package.json'))('playwright-core');
  const [width, height] = size.split('x').map(Number);
  const context = await chromium.launchPersistentContext(join(profile, 'browser'), {
    executablePath: browserPath,
    headless: true,
    viewport: { width, height },
    args: ['--no-sandbox', '--disable-gpu', '--use-gl=angle', '--use-angle=swiftshader', '--enable-unsafe-swiftshader', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  context.setDefaultTimeout(PATIENCE_MS);
  return context;
}

/** `program`: palpate-server. Ends with `end`, which says how; `folder`: for a file in which it says where it listens; `more`: arguments. */
export async function startServer(program, sceneFile, folder, more = []) {
  const readyFile = join(folder, 'ready.json');
  rmSync(readyFile, { force: true });
  const server = spawn(program, ['--listen', '127.0.0.1:0', '--http', '127.0.0.1:0', '--web-root', join(webDir, 'dist'), '--scene', sceneFile,
    '--ready-file', readyFile, '--log-level', 'warning', ...more], { stdio: 'inherit' });
  const ended = new Promise((resolve) => {
    server.once('exit', resolve);
    server.once('error', resolve);
  });
  const deadline = Date.now() + PATIENCE_MS;
  while (!existsSync(readyFile)) {
    if (server.exitCode !== null || server.pid === undefined || Date.now() > deadline) {
      server.kill('SIGKILL');
      throw new Error('the server does not start');
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const ports = JSON.parse(readFileSync(readyFile, 'utf8'));
  return {
    url: `http://127.0.0.1:${ports.http_port}/`,
    /** For other clients. */
    address: `127.0.0.1:${ports.grpc_port}`,
    /** As a crash would. */
    kill: () => {
      server.kill('SIGKILL');
      return ended;
    },
    /** Its exit status. */
    end: () => {
      server.kill('SIGTERM');
      return ended;
    },
  };
}

/** What the page has to complain about, as it comes. */
export function complaintsOf(page) {
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(`page: ${error.message}`));
  page.on('console', (message) => {
    // The browser itself logs failed connections while the server is away.
    if (message.type() === 'error' && !/WebSocket connection|ERR_CONNECTION_REFUSED/.test(message.text())) complaints.push(`console: ${message.text()}`);
  });
  return complaints;
}

export async function step(name, run) {
  const begin = Date.now();
  await run();
  console.log(`ok  ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
}

/**
 * Runs a test of a scene on the viewer's page, with the arguments of the program, --server PALPATE_SERVER [--out FOLDER] [--size WxH], and exits: 0 passed,
 * 1 failed (a step, what the page complains about, how the server ended), 77 no browser on this machine. `scene`: what its file says; `files`: what else
 * stands beside it, by name; `serverArguments`: given the folder of all these. `test` gets { page, server, outDir }.
 */
export async function testScene({ scene, files = {}, serverArguments = () => [] }, test) {
  const { values: options } = parseArgs({ options: { server: { type: 'string' }, out: { type: 'string' }, size: { type: 'string', default: '720x520' } } });
  if (!options.server) {
    console.error(`usage: ${process.argv[1]} --server PALPATE_SERVER [--out FOLDER] [--size WxH]`);
    process.exit(1);
  }
  if (!browserPath) {
    console.log('skipped: no chromium (set PALPATE_CHROMIUM)');
    process.exit(77);
  }
  const outDir = options.out ?? join(tmpdir(), `palpate-${scene.name}`);
  mkdirSync(outDir, { recursive: true });
  const profile = mkdtempSync(join(tmpdir(), 'palpate-chromium-'));
  for (const [name, data] of Object.entries({ 'scene.json': JSON.stringify(scene), ...files })) writeFileSync(join(profile, name), data, { mode: 0o600 });
  let server, context, page;
  let complaints = [];
  let failed = false;
  try {
    server = await startServer(options.server, join(profile, 'scene.json'), profile, serverArguments(profile));
    context = await openBrowser(profile, options.size);
    page = context.pages()[0] ?? (await context.newPage());
    complaints = complaintsOf(page);
    await test({ page, server, outDir });
  } catch (error) {
    failed = true;
    console.error(error);
    await page?.screenshot({ path: join(outDir, 'failed.png'), timeout: 30_000 }).catch(() => {});
  }
  await context?.close();
  const status = await server?.end();
  if (server && status !== 0) complaints.push(`the server ended with ${status}`);
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  if (complaints.length > 0) console.error(complaints.join('\n'));
  failed ||= complaints.length > 0;
  console.log(`${failed ? '' : 'passed; '}screenshots: ${outDir}`);
  process.exit(failed ? 1 : 0);
}
