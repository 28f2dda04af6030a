import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { test } from 'node:test';

const program = createRequire(import.meta.url).resolve('../../scripts/check_node.cjs');  // from build/test, where the bundle is
const { complaint } = createRequire(import.meta.url)(program) as { complaint(version: string, need: string): string | null };

test('versions are compared as numbers, part by part', () => {
  for (const version of ['18.19.0', '18.19.1', '18.20.4', '20.0.0', '100.0.0', '22.0.0-pre']) assert.equal(complaint(version, '>=18.19'), null, version);
  for (const version of ['18.18.9', '18.2.0', '16.20.2', '9.99.99'])
    assert.match(complaint(version, '>=18.19') ?? '', new RegExp(`needs Node.js 18.19 or later, found ${version}`));
  assert.equal(complaint('18.0.0', '>=18'), null);
  assert.match(complaint('18.19.0', '>=18.19.1') ?? '', /needs Node.js 18.19.1/);
  assert.throws(() => complaint('18.19.0', '^18'), /engines.node in package.json has to look like/);
});

test('the program refuses an old Node with a sentence, and takes the one that runs it', () => {
  const old = spawnSync(process.execPath, [program, '16.20.2'], { encoding: 'utf8' });
  assert.equal(old.status, 2);
  assert.match(old.stderr, /^the viewer needs Node.js \d+.* or later, found 16.20.2. .*\n$/);
  assert.equal(spawnSync(process.execPath, [program]).status, 0);
});

test('what Node 18 does not have is not there, Web Crypto is', () => {
  assert.equal(typeof (globalThis as { WebSocket?: unknown }).WebSocket, 'undefined');
  assert.equal(typeof (globalThis as { navigator?: unknown }).navigator, 'undefined');
  assert.equal(crypto.getRandomValues(new Uint32Array(3)).length, 3);
});
