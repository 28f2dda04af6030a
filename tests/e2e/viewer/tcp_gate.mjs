// A TCP relay that can be shut, so that a test can take any server away from a browser and give it back.
import net from 'node:net';

export class TcpGate {
  #target;
  #server;
  #sockets = new Set();
  port = 0;

  constructor(host, port) {
    this.#target = { host, port };
  }

  async open() {
    this.#server = net.createServer((near) => {
      const far = net.connect(this.#target);
      for (const socket of [near, far]) {
        this.#sockets.add(socket);
        socket.setNoDelay(true);
        socket.on('close', () => {
          this.#sockets.delete(socket);
          near.destroy();
          far.destroy();
        });
        socket.on('error', () => socket.destroy());
      }
      near.pipe(far);
      far.pipe(near);
    });
    await new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(this.port, '127.0.0.1', resolve);
    });
    this.port = this.#server.address().port;
  }

  /** Cuts every connection and refuses new ones. */
  async shut() {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}
