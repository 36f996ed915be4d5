// Confirmation pages shown as dialogs: the same form, without leaving the page.

export function confirmByDialog() {
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-confirm]");
    if (!form) return;
    event.preventDefault();
    show(form, event.submitter);
  });
}

async function show(form, opener) {
  let part = null;
  try {
    const reply = await fetch(form.action, { headers: { "X-RQ-Live": "1" } });
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    part = page.getElementById("ask");
  } catch {
    // the page itself will say what is wrong
  }
  if (!part) {
    location.assign(form.action);
    return;
  }
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "ask-title");
  part = document.importNode(part, true);
  part.classList.remove("panel");
  sendBackHere(part);
  dialog.append(part);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) {
      event.preventDefault();
      dialog.close();
    }
  });
  showUntilClosed(dialog, opener);
}

// At its end the focus is again where it was. A live page may have made the opener again
// meanwhile: then it is the one in the same row that leads to the same place.
function showUntilClosed(dialog, opener) {
  const row = opener?.closest("[id]")?.id;
  const form = opener?.closest("form")?.getAttribute("action");
  dialog.addEventListener("close", () => {
    dialog.remove();
    (opener?.isConnected ? opener : madeAgain(row, form))?.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
}

function madeAgain(id, action) {
  const place = document.getElementById(id ?? "");
  const same = [...(place ?? document).querySelectorAll("form")].find(
    (form) => form.getAttribute("action") === action,
  );
  return same?.querySelector("button") ?? place?.querySelector("a, button");
}

// Who acted on a list wants to be on that list again, unless the page will be gone.
function sendBackHere(part) {
  const back = part.querySelector("input[name=back]");
  const here = location.pathname;
  const action = new URL(part.querySelector("form").action).pathname;
  const gone = here === action || here.startsWith(`${action}/`);
  if (back && !gone) back.value = here + location.search;
  else if (back && !part.querySelector("[value=delete]")) back.value = here + location.search;
}

export function openDialog(title, content) {
  const dialog = document.createElement("dialog");
  const box = document.createElement("div");
  box.className = "ask";
  const head = document.createElement("h2");
  head.id = "dialog-title";
  head.textContent = title;
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  const actions = document.createElement("div");
  actions.className = "actions";
  actions.append(close);
  box.append(head, content, actions);
  dialog.setAttribute("aria-labelledby", "dialog-title");
  dialog.append(box);
  showUntilClosed(dialog, document.activeElement);
}
