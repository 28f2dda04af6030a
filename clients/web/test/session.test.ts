import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { SceneInfoSchema } from '../generated/palpate/v1/control_pb';
import { ViewerUpdateSchema, type ViewerUpdate } from '../generated/palpate/v1/viewer_pb';
import { ServerError } from '../src/net/connection';
import { SceneStream } from '../src/session/scene_stream';
import { Session } from '../src/session/session';
import { FakeClock } from './fake_clock';

const settle = () => new Promise((resolve) => setImmediate(resolve));

const listOf = (ids: string[]) =>
  ({ case: 'list', value: { scenes: ids.map((sceneId) => create(SceneInfoSchema, { sceneId })) } }) as ViewerUpdate['update'];

function harness(wanted: string) {
  const log: string[] = [];
  const lists: { resolve: (ids: string[]) => void; reject: (error: Error) => void }[] = [];
  const clock = new FakeClock();
  const watched: string[] = [];
  const connection = {
    isOpen: true,
    call: () => new Promise<ViewerUpdate['update']>((resolve, reject) => lists.push({ resolve: (ids) => resolve(listOf(ids)), reject })),
    send: (request: { value?: unknown }) => watched.push((request.value as { sceneId: string }).sceneId),
  };
  const nothing = () => {};
  const copy = { organs: [], load: () => undefined, applyDelta: () => undefined, update: () => undefined, clear: nothing };
  const stream = new SceneStream(copy, connection, {
    onKeyframe: nothing, onTopology: nothing, onFrame: nothing, onShown: nothing, onRunState: nothing, onStepBack: nothing,
    onProblem: nothing,
  }, clock);
  const session = new Session(wanted, connection, stream, {
    onState: ({ kind }) => log.push(kind),
    onScenes: (scenes) => log.push(`scenes ${scenes.map(({ sceneId }) => sceneId).join(' ')}`),
    onUnknownScene: (id) => log.push(`unknown ${id}`),
    onOtherScene: () => log.push('other scene'),
    onWatch: (id) => log.push(`watch ${id}`),
    onNoScene: () => log.push('no scene'),
    onAttached: () => log.push('attached'),
    onRefusal: (isOfWatch, error) => log.push(`${isOfWatch ? 'watch' : 'other'} refused: ${error.message}`),
    onListRefused: (error) => log.push(`list refused: ${error.message}`),
  }, clock);
  return {
    session, stream, connection, clock, lists, watched,
    /** The server answers the last question for its list. */
    answer: async (...ids: string[]) => {
      lists.at(-1)!.resolve(ids);
      await settle();
    },
    refuse: (requestId: number, code: number, message: string) =>
      session.onUpdate(create(ViewerUpdateSchema, { requestId, update: { case: 'error', value: { code, message } } })),
    happened: () => log.splice(0),
  };
}

test('the wanted scene is watched as soon as the server has it', async () => {
  const { session, answer, watched, happened } = harness('kidney');
  session.onConnection({ kind: 'open' });
  await answer('liver', 'kidney');
  assert.deepEqual(happened(), ['open', 'other scene', 'watch kidney', 'scenes liver kidney']);
  assert.deepEqual(watched, ['kidney']);
  assert.equal(session.scene?.sceneId, 'kidney');
});

test('a scene that the server does not have is told once, and the first one is watched', async () => {
  const { session, answer, watched, happened } = harness('spleen');
  session.onConnection({ kind: 'open' });
  await answer('liver', 'kidney');
  assert.ok(happened().includes('unknown spleen'));
  assert.deepEqual(watched, ['liver']);
  assert.equal(session.sceneId, 'liver');
});

test('the list is asked for from time to time, and the scene that goes makes room for the first', async () => {
  const { session, answer, clock, lists, watched, happened } = harness('');
  session.onConnection({ kind: 'open' });
  await answer('liver', 'kidney');
  happened();
  clock.advance(2500);
  assert.equal(lists.length, 2);
  await answer('kidney');
  assert.deepEqual(happened(), ['other scene', 'watch kidney', 'scenes kidney'], 'its going is no surprise: nothing is told');
  clock.advance(2500);
  await answer();
  assert.deepEqual(happened(), ['no scene', 'scenes ']);
  assert.deepEqual(watched, ['liver', 'kidney']);
});

test('without a connection nothing is asked; a new one watches anew and counts', async () => {
  const { session, stream, connection, answer, clock, lists, watched } = harness('');
  session.onConnection({ kind: 'connecting', attempt: 0 });
  session.onConnection({ kind: 'open' });
  await answer('liver');
  assert.equal(session.reconnects, 0);
  connection.isOpen = false;
  session.onConnection({ kind: 'waiting', attempt: 1, retryAtMs: 500, reason: '' });
  clock.advance(10000);
  assert.equal(lists.length, 1);
  assert.equal(stream.sceneId, 'liver');
  session.onConnection({ kind: 'connecting', attempt: 1 });
  connection.isOpen = true;
  session.onConnection({ kind: 'open' });
  assert.equal(stream.sceneId, '');
  await answer('liver');
  assert.equal(session.reconnects, 1);
  assert.deepEqual(watched, ['liver', 'liver']);
});

test('a watch that the server ends is sought again, other refusals leave it alone', async () => {
  const { session, stream, answer, lists, refuse, happened } = harness('');
  session.onConnection({ kind: 'open' });
  await answer('liver');
  happened();
  refuse(77, 9, 'no tool is attached');
  assert.equal(stream.sceneId, 'liver');
  refuse(0, 10, 'the scene was deleted');
  assert.equal(stream.sceneId, '');
  assert.equal(lists.length, 2);
  assert.deepEqual(happened(), ['other refused: no tool is attached', 'watch refused: the scene was deleted']);
});

test('a scene that was made of the watched one is watched at once, and left for that when it goes', async () => {
  const { session, answer, lists, watched, happened } = harness('kidney');
  session.onConnection({ kind: 'open' });
  await answer('liver', 'kidney');
  void session.refresh();
  session.open(create(SceneInfoSchema, { sceneId: 'replay' }));
  assert.equal(session.scene?.sceneId, 'replay');
  await answer('liver', 'kidney');  // asked for before there was a replay
  void session.refresh();
  happened();
  await answer('liver', 'kidney', 'replay');
  assert.deepEqual(happened(), ['scenes liver kidney replay']);
  assert.equal(lists.length, 3);
  void session.refresh();
  await answer('liver', 'kidney');
  assert.deepEqual(watched, ['kidney', 'replay', 'kidney']);
});

test('a refused list is told, one that went with the connection is not', async () => {
  const { session, lists, happened } = harness('');
  session.onConnection({ kind: 'open' });
  lists[0]!.reject(new Error('the connection to the server ended'));
  await settle();
  assert.deepEqual(happened(), ['open']);
  void session.refresh();
  lists[1]!.reject(new ServerError(8, 'too much'));
  await settle();
  assert.deepEqual(happened(), ['list refused: too much']);
});
