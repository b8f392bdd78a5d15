// The version of a package that is installed here.

import { readFileSync } from 'node:fs';

export function versionOf(name) {
  const file = new URL(`./node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file, 'utf8')).version;
}
