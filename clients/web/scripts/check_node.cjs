// Says whether a Node.js meets `engines` of package.json, which is the one place that names it: `./run` and CMake ask before anything else starts.
// usage: node check_node.cjs [VERSION]   (default: the version that runs it)   exit status: 0 yes, 2 no, with a sentence.
// CommonJS and plain syntax, so that an old Node can still say that it is too old.
'use strict';
const engines = require('../package.json').engines;

/** The three numbers of `text` ("18.19", "v20.1.0-pre"); those that are left out are 0. */
function numbers(text) {
  const match = /^v?(\d+)(?:\.(\d+))?(?:\.(\d+))?/.exec(text);
  return [match[1], match[2] || 0, match[3] || 0].map(Number);
}

/** What is wrong with this version for a need like ">=18.19", or null. */
function complaint(version, need) {
  const least = /^>=\s*(\d+(?:\.\d+){0,2})$/.exec(need);
  if (!least) throw new Error('engines.node in package.json has to look like ">=18.19", is "' + need + '"');
  const have = numbers(version);
  const want = numbers(least[1]);
  for (let i = 0; i < 3; ++i) {
    if (have[i] > want[i]) return null;
    if (have[i] < want[i]) return 'the viewer needs Node.js ' + least[1] + ' or later, found ' + version + '. Debian 12 has it: apt-get install nodejs npm';
  }
  return null;
}

module.exports = { complaint: complaint };

if (require.main === module) {
  const wrong = complaint(process.argv[2] || process.versions.node, engines.node);
  if (wrong) {
    console.error(wrong);
    process.exit(2);
  }
}
