// Light or dark: what the system says, until the reader chooses.

export function startTheme() {
  const button = document.getElementById("theme");
  button.hidden = !CSS.supports("color", "light-dark(#000, #fff)"); // else there is one
  button.addEventListener("click", change);
}

function change() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  const path = document.body.dataset.root;
  document.cookie = `rq_theme=${root.dataset.theme}; path=${path}; max-age=31536000; samesite=lax`;
}
