"use strict";
// The cosine under the pointer. Without this nothing else is lost.
for (const map of document.querySelectorAll("svg[data-v]")) {
  const { n, first, h, w, m, v } = map.dataset;
  const levels = new Int8Array(Uint8Array.from(atob(v), (c) => c.charCodeAt(0)).buffer);
  const read = map.querySelector(".read");
  map.onpointermove = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    const [x, y] = [(at.x - 34) / 290, (at.y - 24) / 290];
    read.textContent = "";
    if (!(x >= 0 && y >= 0 && x < 1 && y < 1)) return;
    const tile = (place, side) => [Math.floor(place * side), Math.floor(place * side * side) % side];
    let [i, j, names] = [Math.floor(y * m), Math.floor(x * m), ""];
    if (n) names = [y, x].map((place) => Math.floor(place * n) + Number(first)).join(", ");
    else {
      const [[row, inRow], [column, inColumn]] = [tile(y, +h), tile(x, +w)];
      [i, j] = [row * w + column, inRow * w + inColumn];
      names = `(${row}, ${column}), (${inRow}, ${inColumn})`;
    }
    const [low, high] = [Math.min(i, j), Math.max(i, j)]; // the lower half of a symmetric matrix
    const level = levels[(high * (high + 1)) / 2 + low];
    read.textContent = `${names}: ${level < -100 ? "undefined" : (level / 100).toFixed(2)}`;
  };
}
