// Times stand in UTC; the tooltip says what the reader's clock showed, and a button of the
// head changes all of them to that.

const KEY = "rq-zone";

export function startTimes() {
  const button = document.getElementById("zone");
  if (!document.querySelector("time[data-when]")) return;
  let zone = kept();
  const isLocal = () => zone === "local";
  const apply = () => {
    button.textContent = isLocal() ? "local" : "UTC";
    button.setAttribute("aria-pressed", String(isLocal()));
    for (const time of document.querySelectorAll("time[data-when]")) say(time, isLocal());
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    zone = isLocal() ? "UTC" : "local";
    try {
      localStorage.setItem(KEY, zone);
    } catch {
      // it holds as long as the page
    }
    apply();
  });
  document.addEventListener("rq:fresh", apply);
  apply();
}

function kept() {
  try {
    return localStorage.getItem(KEY) || "UTC";
  } catch {
    return "UTC";
  }
}

function say(time, isLocal) {
  const at = new Date(Number(time.dataset.when) * 1000);
  const utc = at.toISOString().slice(0, 19).replace("T", " ");
  const local = `${day(at)} ${clock(at)}`;
  time.title = `${local} here, ${utc} UTC`;
  const isShort = !time.textContent.includes("-");
  if (isLocal) time.textContent = isShort ? clock(at) : local.slice(0, 16);
  else time.textContent = isShort ? utc.slice(11) : utc.slice(0, 16);
}

const two = (number) => String(number).padStart(2, "0");
const day = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
const clock = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
