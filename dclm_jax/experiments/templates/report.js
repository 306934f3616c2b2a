// Shows one sentence of an example at a time. Without this script all of them are shown.
const steppers = [...document.querySelectorAll(".example")].map((example) => {
  const steps = [...example.querySelectorAll(".step")];
  const [back, next] = example.querySelectorAll("button");
  const told = example.querySelector("[aria-live]");
  let at = 0;

  const go = (by) => {
    at = Math.min(Math.max(at + by, 0), steps.length - 1);
    steps.forEach((step, index) => { step.hidden = index !== at; });
    back.setAttribute("aria-disabled", at === 0);
    next.setAttribute("aria-disabled", at === steps.length - 1);
    told.textContent = steps[at].querySelector("h4").textContent;
  };

  back.addEventListener("click", () => go(-1));
  next.addEventListener("click", () => go(1));
  example.querySelector(".controls").hidden = false;
  go(0);
  return { example, go };
});

const inView = ({ example }) => {
  const box = example.getBoundingClientRect();
  return box.top < innerHeight && box.bottom > 0;
};

document.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const { target } = event;
  // In a table that is too wide these keys scroll; elsewhere in the page they are the reader's.
  if (!by || event.ctrlKey || event.altKey || event.metaKey || target.closest(".wide")) return;
  const holdsFocus = ({ example }) => example.contains(target);
  const stepper = steppers.find(target === document.body ? inView : holdsFocus);
  if (stepper) {
    event.preventDefault();
    stepper.go(by);
  }
});
