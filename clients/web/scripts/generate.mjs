// Generates TypeScript from the public API with protoc, unless what is there is newer.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const webDir = join(dirname(fileURLToPath(import.meta.url)), '..');
const protoDir = join(webDir, '..', '..', 'proto');
const outDir = join(webDir, 'generated');
const stamp = join(outDir, '.stamp');

export function generate() {
  const protos = readdirSync(join(protoDir, 'palpate', 'v1')).filter((name) => name.endsWith('.proto')).map((name) => `palpate/v1/${name}`);
  const inputs = [...protos.map((name) => join(protoDir, name)), join(webDir, 'package-lock.json'), fileURLToPath(import.meta.url)];
  const made = statSync(stamp, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  if (inputs.every((file) => statSync(file).mtimeMs < made)) return;
  rmSync(outDir, { recursive: true, force: true });
  mkdirSync(outDir, { recursive: true });
  const plugin = join(webDir, 'node_modules', '.bin', 'protoc-gen-es');
  try {
    execFileSync(process.env.PROTOC || 'protoc',
      [`--plugin=protoc-gen-es=${plugin}`, `--es_out=${outDir}`, '--es_opt=target=ts', '-I', protoDir, ...protos], { stdio: 'inherit' });
  } catch (error) {
    console.error(error.code === 'ENOENT' ? 'protoc not found: install the package protobuf-compiler, or set PROTOC' : String(error.message));
    process.exit(1);
  }
  writeFileSync(stamp, '');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) generate();
