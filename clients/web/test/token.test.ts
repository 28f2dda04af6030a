import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TokenGate, tokenInFragment, tokenProtocols } from '../src/net/token';

/** A server that wants `token` ("" = none), and a user who answers with `typed`, one after the other. */
function harness(token: string, typed: string[] = [], stored = '') {
  const asked: string[] = [];
  const memory = new Map([['palpate-token', stored]]);
  const gate = new TokenGate(
    async (headers) => ({ status: token === '' || headers.Authorization === `Bearer ${token}` ? 204 : 401, text: async () => '' }),
    async (message) => {
      asked.push(message);
      return typed.shift() ?? assert.fail('asked once too often');
    },
    { getItem: (key) => memory.get(key) ?? null, setItem: (key, value) => void memory.set(key, value) },
  );
  return { gate, asked, memory };
}

test('a server without a token asks nobody', async () => {
  const { gate, asked } = harness('');
  assert.deepEqual(await gate.protocols(), []);
  assert.deepEqual(asked, []);
});

test('the user is asked until the token is right, and then no more', async () => {
  const { gate, asked, memory } = harness('right?>', ['wrong', ' right?> ']);
  const protocols = await gate.protocols();
  assert.deepEqual(asked, ['', 'The server does not know this token.']);
  assert.deepEqual(protocols, ['palpate.v1', 'token.cmlnaHQ_Pg']);
  assert.equal(memory.get('palpate-token'), 'right?>');
  assert.deepEqual(await gate.protocols(), protocols);
  assert.equal(asked.length, 2);
});

test('a remembered token that went stale is asked for anew', async () => {
  const { gate, asked } = harness('new', ['new'], 'old');
  assert.deepEqual(await gate.protocols(), tokenProtocols('new'));
  assert.equal(asked.length, 1);
});

test('too many guesses are an error with the words of the server', async () => {
  const memory = { getItem: () => 'x', setItem: () => assert.fail('nothing to remember') };
  const gate = new TokenGate(async () => ({ status: 429, text: async () => 'too many\n' }), () => assert.fail('nobody to ask'), memory);
  await assert.rejects(gate.protocols(), /^Error: too many$/);
});

test('a fragment may carry the token', () => {
  assert.equal(tokenInFragment('#token=a%2Bb'), 'a+b');
  assert.equal(tokenInFragment('#token='), undefined);
  assert.equal(tokenInFragment('#other=1'), undefined);
  assert.equal(tokenInFragment(''), undefined);
});
