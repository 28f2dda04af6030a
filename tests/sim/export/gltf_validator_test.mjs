// The validator of the format's authors has nothing against what Palpate writes: gltf_validator_test.mjs SIM_EXPORT_TEST FOLDER_WITH_NODE_MODULES
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [writer, modules] = process.argv.slice(2);
const validator = createRequire(join(modules, 'package.json'))('gltf-validator');
const folder = mkdtempSync(join(tmpdir(), 'palpate-gltf-'));
try {
  execFileSync(writer, ['--gtest_filter=Samples.*'], { env: { ...process.env, PALPATE_EXPORT_SAMPLES: folder } });
  for (const { file, animations, morphs, textured } of [
    { file: 'bar.glb', animations: 1, morphs: true, textured: true },
    { file: 'still.glb', animations: 0, morphs: false, textured: false },
  ]) {
    const { issues, info } = await validator.validateBytes(new Uint8Array(readFileSync(join(folder, file))));
    assert.equal(issues.numErrors + issues.numWarnings, 0, JSON.stringify(issues.messages, null, 1));
    assert.equal(info.version, '2.0');
    assert.equal(info.animationCount, animations);
    assert.equal(info.hasMorphTargets, morphs);
    assert.equal(info.hasTextures, textured);
    console.log(`${file}: valid, ${info.totalVertexCount} vertices, ${info.totalTriangleCount} triangles`);
  }
} finally {
  rmSync(folder, { recursive: true });
}
