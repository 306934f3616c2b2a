// Shows the numbers of the word under the pointer, or of the word that Tab and arrow keys reach.
const words = [...document.querySelectorAll("ruby")], shown = document.getElementById("shown");
for (const word of words) word.tabIndex = word.matches(":first-of-type") ? 0 : -1;
for (const event of ["focusin", "mouseover"]) document.addEventListener(event, ({target}) => {
  const word = target.closest("ruby");
  if (word) shown.textContent = word.firstChild.data + ": " + word.title;
});
document.addEventListener("keydown", event => {
  const at = words.indexOf(event.target);
  const next = at < 0 ? null : words[at + {ArrowRight: 1, ArrowLeft: -1}[event.key]];
  if (next) { next.focus(); event.preventDefault(); }
});
