import { create, fromBinary, toBinary, type MessageInitShape } from '@bufbuild/protobuf';
import { ViewerRequestSchema, ViewerUpdateSchema, type ViewerRequest, type ViewerUpdate } from '../../generated/palpate/v1/viewer_pb';

/** What Connection needs of a WebSocket; the browser's own fits. */
export interface SocketLike {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  send(data: Uint8Array): void;
  close(): void;
}

export interface Clock {
  setTimeout(run: () => void, ms: number): unknown;
  clearTimeout(handle: unknown): void;
  now(): number;
}

export type ConnectionState =
  | { kind: 'connecting'; attempt: number }
  | { kind: 'open' }
  | { kind: 'waiting'; attempt: number; retryAtMs: number; reason: string };

export interface ConnectionEvents {
  onState(state: ConnectionState): void;
  /** Updates that answer no pending call: the watch, the tool, late errors. */
  onUpdate(update: ViewerUpdate): void;
}

/** An answer of the server that is a ViewerError; `code` is a canonical status code. */
export class ServerError extends Error {
  constructor(readonly code: number, message: string) {
    super(message);
  }
}

type RequestInit = NonNullable<MessageInitShape<typeof ViewerRequestSchema>['request']>;
type Answer = ViewerUpdate['update'];

const OPEN = 1;
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 10000;
/** A connection that lasted so long was a good one: the next retry is quick again. */
const STABLE_MS = 5000;
const CONNECT_TIMEOUT_MS = 10000;
/** Poses wait rather than pile up behind a link that does not keep up. */
const MAX_BUFFERED_BYTES = 64 * 1024;

/** Wait before attempt number `attempt` (1, 2, ...), without jitter. */
export function retryDelayMs(attempt: number): number {
  return Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.max(0, attempt - 1));
}

/** Keeps a WebSocket to the server open, for ever, and matches answers with requests. */
export class Connection {
  private socket: SocketLike | undefined;
  private timer: unknown;
  /** Counts the attempts ever made: what comes of an older one means nothing. */
  private round = 0;
  private attempt = 0;
  private openedAtMs = 0;
  private nextId = 1;
  private readonly pending = new Map<number, { resolve: (answer: Answer) => void; reject: (error: Error) => void }>();
  private lastError = '';
  bytesReceived = 0;

  constructor(
    private readonly open: () => SocketLike | Promise<SocketLike>,
    private readonly events: ConnectionEvents,
    private readonly clock: Clock = {
      setTimeout: (run, ms) => globalThis.setTimeout(run, ms),
      clearTimeout: (handle) => globalThis.clearTimeout(handle as number),
      now: () => performance.now(),
    },
    private readonly random: () => number = Math.random,
  ) {}

  get isOpen(): boolean {
    return this.socket?.readyState === OPEN;
  }

  start(): void {
    this.clock.clearTimeout(this.timer);
    this.events.onState({ kind: 'connecting', attempt: this.attempt });
    const round = ++this.round;
    const failed = (error: unknown) => {
      if (round === this.round) this.onClosed(error instanceof Error ? error.message : String(error));
    };
    try {
      const opened = this.open();
      if (!(opened instanceof Promise)) this.attach(opened);
      else opened.then((socket) => (round === this.round ? this.attach(socket) : socket.close()), failed);
    } catch (error) {
      failed(error);
    }
  }

  private attach(socket: SocketLike): void {
    this.socket = socket;
    socket.binaryType = 'arraybuffer';
    socket.onopen = () => {
      if (socket !== this.socket) return;
      this.clock.clearTimeout(this.timer);
      this.openedAtMs = this.clock.now();
      this.lastError = '';
      this.events.onState({ kind: 'open' });
    };
    socket.onmessage = (event: { data: unknown }) => {
      if (socket === this.socket) this.onMessage(event.data);
    };
    socket.onclose = (event: { reason?: string }) => {
      if (socket === this.socket) this.onClosed(event.reason ?? '');
    };
    this.timer = this.clock.setTimeout(() => this.drop('no answer'), CONNECT_TIMEOUT_MS);
  }

  /** Skips the wait for the next attempt. */
  retryNow(): void {
    if (!this.socket) this.start();
  }

  /** Sends a request that has one answer. Rejects with a ServerError, or when the connection ends first. */
  call(request: RequestInit): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const id = this.send(request);
      if (id === 0) reject(new Error('the server is away'));
      else this.pending.set(id, { resolve, reject });
    });
  }

  /** Sends a request without waiting for an answer; its id, or 0 if the server is away. */
  send(request: RequestInit): number {
    if (!this.socket || this.socket.readyState !== OPEN) return 0;
    const requestId = this.nextId++;
    const message: ViewerRequest = create(ViewerRequestSchema, { requestId, request });
    this.socket.send(toBinary(ViewerRequestSchema, message));
    return requestId;
  }

  /** Whether a pose sent now would leave at once. */
  get canSendPose(): boolean {
    return this.isOpen && (this.socket?.bufferedAmount ?? 0) < MAX_BUFFERED_BYTES;
  }

  private onMessage(data: unknown): void {
    if (!(data instanceof ArrayBuffer)) {
      this.drop('the server sent text');
      return;
    }
    this.bytesReceived += data.byteLength;
    let update: ViewerUpdate;
    try {
      update = fromBinary(ViewerUpdateSchema, new Uint8Array(data));
    } catch {
      this.drop('the server sent something that is no ViewerUpdate');
      return;
    }
    const waiting = this.pending.get(update.requestId);
    if (waiting) {
      this.pending.delete(update.requestId);
      if (update.update.case === 'error') waiting.reject(new ServerError(update.update.value.code, update.update.value.message));
      else waiting.resolve(update.update);
      return;
    }
    if (update.update.case === 'error') this.lastError = update.update.value.message;
    this.events.onUpdate(update);
  }

  private drop(reason: string): void {
    const socket = this.socket;
    this.onClosed(reason);
    socket?.close();
  }

  private onClosed(reason: string): void {
    this.clock.clearTimeout(this.timer);
    this.socket = undefined;
    for (const { reject } of this.pending.values()) reject(new Error('the connection to the server ended'));
    this.pending.clear();
    if (this.openedAtMs > 0 && this.clock.now() - this.openedAtMs > STABLE_MS) this.attempt = 0;
    this.openedAtMs = 0;
    this.attempt += 1;
    const delayMs = retryDelayMs(this.attempt) * (0.85 + 0.3 * this.random());
    this.timer = this.clock.setTimeout(() => this.start(), delayMs);
    this.events.onState({ kind: 'waiting', attempt: this.attempt, retryAtMs: this.clock.now() + delayMs, reason: reason || this.lastError });
  }
}
