import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { ViewerRequestSchema, ViewerUpdateSchema, type ViewerUpdate } from '../generated/palpate/v1/viewer_pb';
import { Connection, retryDelayMs, ServerError, type ConnectionState, type SocketLike } from '../src/net/connection';

class FakeSocket implements SocketLike {
  binaryType = '';
  readyState = 0;
  bufferedAmount = 0;
  onopen: ((event: never) => void) | null = null;
  onmessage: ((event: never) => void) | null = null;
  onclose: ((event: never) => void) | null = null;
  sent: Uint8Array[] = [];
  closed = false;

  send(data: Uint8Array): void {
    this.sent.push(data);
  }
  close(): void {
    this.closed = true;
    this.readyState = 3;
  }
  accept(): void {
    this.readyState = 1;
    this.onopen?.({} as never);
  }
  drop(reason = ''): void {
    this.readyState = 3;
    this.onclose?.({ reason } as never);
  }
  receive(update: object): void {
    const bytes = toBinary(ViewerUpdateSchema, create(ViewerUpdateSchema, update));
    this.receiveRaw(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  }
  receiveRaw(data: unknown): void {
    this.onmessage?.({ data } as never);
  }
  request(index: number) {
    return fromBinary(ViewerRequestSchema, this.sent[index]!);
  }
}

function harness() {
  const sockets: FakeSocket[] = [];
  const states: ConnectionState[] = [];
  const updates: ViewerUpdate[] = [];
  const timers: { run: () => void; at: number; handle: number }[] = [];
  let now = 0;
  let handles = 0;
  const connection = new Connection(
    () => {
      const socket = new FakeSocket();
      sockets.push(socket);
      return socket;
    },
    { onState: (state) => states.push(state), onUpdate: (update) => updates.push(update) },
    {
      setTimeout: (run, ms) => {
        timers.push({ run, at: now + ms, handle: ++handles });
        return handles;
      },
      clearTimeout: (handle) => {
        const at = timers.findIndex((timer) => timer.handle === handle);
        if (at >= 0) timers.splice(at, 1);
      },
      now: () => now,
    },
    () => 0.5,
  );
  const advance = (ms: number) => {
    now += ms;
    for (const timer of timers.filter((one) => one.at <= now)) {
      timers.splice(timers.indexOf(timer), 1);
      timer.run();
    }
  };
  const last = () => states[states.length - 1]!;
  const socket = () => sockets[sockets.length - 1]!;
  return { connection, sockets, states, updates, advance, last, socket };
}

test('answers find their requests, in any order, and the rest goes to the listener', async () => {
  const h = harness();
  h.connection.start();
  h.socket().accept();
  assert.equal(h.last().kind, 'open');
  const first = h.connection.call({ case: 'list', value: {} });
  const second = h.connection.call({ case: 'play', value: { sceneId: 'x' } });
  const [a, b] = [h.socket().request(0), h.socket().request(1)];
  assert.equal(a.request.case, 'list');
  assert.equal(b.request.value && 'sceneId' in b.request.value ? b.request.value.sceneId : '', 'x');
  h.socket().receive({ requestId: 0, update: { case: 'watch', value: {} } });
  h.socket().receive({ requestId: b.requestId, update: { case: 'scene', value: { sceneId: 'x' } } });
  h.socket().receive({ requestId: a.requestId, update: { case: 'list', value: { scenes: [{ sceneId: 'x' }] } } });
  assert.equal((await second).case, 'scene');
  const answer = await first;
  assert.equal(answer.case === 'list' ? answer.value.scenes.length : 0, 1);
  assert.deepEqual(h.updates.map((update) => update.update.case), ['watch']);
  assert.ok(h.connection.bytesReceived > 0);
});

test('an error of the server rejects its call, and only that', async () => {
  const h = harness();
  h.connection.start();
  h.socket().accept();
  const bad = h.connection.call({ case: 'step', value: { sceneId: 'x', count: 1 } });
  const good = h.connection.call({ case: 'list', value: {} });
  h.socket().receive({ requestId: h.socket().request(0).requestId, update: { case: 'error', value: { code: 9, message: 'it plays' } } });
  h.socket().receive({ requestId: h.socket().request(1).requestId, update: { case: 'list', value: {} } });
  await assert.rejects(bad, (error: unknown) => error instanceof ServerError && error.code === 9 && error.message === 'it plays');
  assert.equal((await good).case, 'list');
});

test('a lost connection rejects what waits and comes back with growing pauses', async () => {
  const h = harness();
  h.connection.start();
  h.socket().accept();
  const waiting = h.connection.call({ case: 'list', value: {} });
  h.socket().drop('the server stops');
  await assert.rejects(waiting, /connection/);
  const state = h.last();
  assert.equal(state.kind, 'waiting');
  assert.equal(state.kind === 'waiting' ? state.reason : '', 'the server stops');
  const pauses: number[] = [];
  for (let attempt = 1; attempt <= 8; ++attempt) {
    const waitingState = h.last();
    assert.ok(waitingState.kind === 'waiting' && waitingState.attempt === attempt);
    pauses.push(retryDelayMs(attempt));
    assert.equal(h.sockets.length, attempt);
    h.advance(retryDelayMs(attempt) - 1);
    assert.equal(h.sockets.length, attempt);
    h.advance(1);
    assert.equal(h.sockets.length, attempt + 1);
    h.socket().drop();
  }
  assert.deepEqual(pauses, [500, 1000, 2000, 4000, 8000, 10000, 10000, 10000]);
});

test('after a good while the next retry is quick again', () => {
  const h = harness();
  h.connection.start();
  for (let i = 0; i < 4; ++i) {
    h.socket().drop();
    h.advance(20000);
  }
  h.socket().accept();
  h.advance(6000);
  h.socket().drop();
  const state = h.last();
  assert.equal(state.kind === 'waiting' ? state.attempt : 0, 1);
});

test('no answer to the handshake counts as away, and the late socket is ignored', () => {
  const h = harness();
  h.connection.start();
  const slow = h.socket();
  h.advance(10000);
  assert.equal(h.last().kind, 'waiting');
  assert.ok(slow.closed);
  slow.accept();
  assert.equal(h.last().kind, 'waiting');
  h.connection.retryNow();
  assert.equal(h.sockets.length, 2);
  h.socket().accept();
  assert.equal(h.last().kind, 'open');
  slow.drop('late');
  assert.equal(h.last().kind, 'open');
});

test('text and garbage from the server end the connection', () => {
  for (const data of ['hello', new Uint8Array([255, 255, 255, 255]).buffer]) {
    const h = harness();
    h.connection.start();
    h.socket().accept();
    h.socket().receiveRaw(data);
    assert.equal(h.last().kind, 'waiting');
    assert.ok(h.socket().closed);
  }
});

test('nothing is sent while the server is away', async () => {
  const h = harness();
  assert.equal(h.connection.send({ case: 'list', value: {} }), 0);
  assert.equal(h.connection.canSendPose, false);
  await assert.rejects(h.connection.call({ case: 'list', value: {} }), /away/);
  h.connection.start();
  assert.equal(h.connection.send({ case: 'list', value: {} }), 0);
  h.socket().accept();
  assert.ok(h.connection.send({ case: 'list', value: {} }) > 0);
  assert.equal(h.connection.canSendPose, true);
  h.socket().bufferedAmount = 1e6;
  assert.equal(h.connection.canSendPose, false);
});
