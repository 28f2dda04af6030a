/** The token of a server that wants one, and where it comes from: the address (`#token=...`), this tab's memory, or the user. */

const STORAGE_KEY = 'palpate-token';
const SUBPROTOCOL = 'palpate.v1';

export interface TokenStorage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

/** What fetch answers, as far as it matters here. */
export interface AuthAnswer {
  status: number;
  text(): Promise<string>;
}

/** The token in the fragment of an address, if there is one. Fragments are not sent to servers, so they are in no log. */
export function tokenInFragment(hash: string): string | undefined {
  return new URLSearchParams(hash.replace(/^#/, '')).get('token') || undefined;
}

/** The WebSocket "subprotocols" that carry a token: a page cannot give its socket any other header. */
export function tokenProtocols(token: string): string[] {
  if (token === '') return [];
  const bytes = new TextEncoder().encode(token);
  const base64 = btoa(String.fromCharCode(...bytes));
  return [SUBPROTOCOL, `token.${base64.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')}`];
}

/** What a request to the server carries: the token that the socket was opened with, if any. */
export function tokenHeaders(storage: Pick<TokenStorage, 'getItem'>): Record<string, string> {
  const token = storage.getItem(STORAGE_KEY) ?? '';
  return token === '' ? {} : { Authorization: `Bearer ${token}` };
}

/** Finds out what the socket must present before it is opened: a browser does not tell a page why its socket was refused. */
export class TokenGate {
  constructor(
    private readonly check: (headers: Record<string, string>) => Promise<AuthAnswer>,
    private readonly ask: (message: string) => Promise<string>,
    private readonly storage: TokenStorage,
  ) {}

  /** The subprotocols to open the socket with. Asks the user until the server takes the token; rejects where it takes none for now. */
  async protocols(): Promise<string[]> {
    let token = this.storage.getItem(STORAGE_KEY) ?? '';
    for (;;) {
      const answer = await this.check(token === '' ? {} : { Authorization: `Bearer ${token}` }).catch(() => Promise.reject(new Error('no answer')));
      if (answer.status === 401) {
        token = (await this.ask(token === '' ? '' : 'The server does not know this token.')).trim();
        continue;
      }
      // A server that does not know the question wants no token.
      if (answer.status !== 204 && answer.status !== 404) throw new Error((await answer.text()).trim() || `the server answered with ${answer.status}`);
      this.remember(token);
      return tokenProtocols(token);
    }
  }

  remember(token: string): void {
    this.storage.setItem(STORAGE_KEY, token);
  }
}
