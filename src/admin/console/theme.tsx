/**
 * The console's colours: light, dark, or the system's choice.
 *
 * @module
 */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

/**
 * Themes in the order of the switch. `auto` follows the system. The choice is not secret, so it is
 * stored.
 */
const THEMES = ["auto", "light", "dark"] as const;
/** One of the themes. */
export type Theme = (typeof THEMES)[number];
const THEME_ITEM = "sallyport-theme";

/** Reads the theme of the last visit. */
export function readTheme(): Theme {
  try {
    const kept = localStorage.getItem(THEME_ITEM);
    return THEMES.find((theme) => theme === kept) ?? "auto";
  } catch {
    return "auto"; // storage is forbidden
  }
}

/** Stores the chosen theme, and applies it to the page. `shown` is the theme in effect. */
export function useTheme(): { theme: Theme; shown: string; next: () => void } {
  const [theme, setTheme] = useState(readTheme);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const [isSystemDark, setSystemDark] = useState(system.matches);
  useEffect(() => {
    const onChange = () => setSystemDark(system.matches);
    system.addEventListener("change", onChange);
    return () => system.removeEventListener("change", onChange);
  }, []);
  document.documentElement.dataset.theme = theme;
  const next = () => {
    const chosen = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto";
    setTheme(chosen);
    try {
      localStorage.setItem(THEME_ITEM, chosen);
    } catch {
      // Without storage, the choice is lost when the page closes.
    }
  };
  const ofSystem = isSystemDark ? "dark" : "light";
  return { theme, shown: theme === "auto" ? ofSystem : theme, next };
}

/** The button that changes the theme. */
export function ThemeSwitch({ theme, next }: { theme: Theme; next: () => void }): JSX.Element {
  const label = { auto: "System", light: "Light", dark: "Dark" }[theme];
  return (
    <button type="button" class="quiet" onClick={next} aria-label={`Colours: ${label}. Change`}>
      <svg class="theme" viewBox="0 0 16 16" aria-hidden="true">
        <circle cx="8" cy="8" r="6" />
        <path d="M8 2a6 6 0 0 1 0 12z" />
      </svg>
      <span class="wide">{label}</span>
    </button>
  );
}
