/** What tells a body of an array from another one. */
export interface Listed {
  readonly name: string;
  readonly vertexCount: number;
  readonly triangleCount: number;
}

/** A name without the number at its end. */
function stem(name: string): string {
  return name.replace(/[0-9]+$/, '');
}

/**
 * Bodies in rows: those that follow each other and are alike but for a number at the end of their names share one, as in `palpate scene
 * check`. Bodies that stand alone are rows of one.
 */
export function foldArrays<T extends Listed>(bodies: readonly T[]): [T, ...T[]][] {
  const rows: [T, ...T[]][] = [];
  for (const body of bodies) {
    const row = rows.at(-1);
    const first = row?.[0];
    const isAlike = first !== undefined && stem(first.name) !== first.name && stem(body.name) === stem(first.name)
      && body.vertexCount === first.vertexCount && body.triangleCount === first.triangleCount;
    if (row && isAlike) row.push(body);
    else rows.push([body]);
  }
  return rows;
}

/** What a row of `foldArrays` is called. */
export function rowLabel(row: readonly [Listed, ...Listed[]]): string {
  return row.length === 1 ? row[0].name : `${row.length} like ${row[0].name}`;
}
