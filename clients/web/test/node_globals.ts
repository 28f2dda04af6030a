// Comes before every unit test (scripts/test.mjs). The tests see the same globals under each Node that package.json allows: those of Node 18, so that what runs on a
// newer one runs on Debian's too, and Web Crypto, which a browser has and Debian's Node 18 hides behind an import.
import { webcrypto } from 'node:crypto';

const globals = globalThis as unknown as Record<string, unknown>;
for (const name of ['CloseEvent', 'CustomEvent', 'ErrorEvent', 'EventSource', 'File', 'Navigator', 'Storage', 'WebSocket', 'localStorage', 'navigator', 'sessionStorage'])
  delete globals[name];
Object.defineProperty(globals, 'crypto', { value: webcrypto, configurable: true, enumerable: true, writable: true });
