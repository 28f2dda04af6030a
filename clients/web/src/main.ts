import './style.css';
import { App } from './app';
import { Keyboard } from './input/keyboard';
import { PointerInput } from './input/pointer_input';
import { REPLAY_IS_FIXED } from './past/words';
import { ScriptApi } from './script_api';
import { Drawer } from './ui/drawer';
import { Help } from './ui/help';
import { ModeBar } from './ui/mode_bar';
import { element } from './ui/panel';
import { Toggles } from './ui/toggles';
import type { ViewOptions } from './view/view_options';

const app = new App(new URLSearchParams(location.search));
const { stage, view, stream, transport, inHand, tools, surgery } = app;
const help = new Help(element('help'));
const modeBar = new ModeBar(surgery, stage.canvas, (message) => app.reports.tell(message));
const drawer = new Drawer(stage, () => {
  app.reports.place();
  app.redraw();
});
const pointer = new PointerInput({ stage, view, stream, tools, inHand, surgery, tissue: app.tissue, modeBar, redraw: () => app.redraw() });

const ofView = (label: string, key: string, option: keyof ViewOptions) => ({
  label,
  key,
  get: () => view.options[option],
  set: (on: boolean) => {
    view.setOptions({ [option]: on });
    app.redraw();
  },
});
const toggles = new Toggles(element('toggles'), [
  ofView('Wireframe', 'm', 'wireframe'),
  ofView('Contacts', 'c', 'contacts'),
  ofView('Normals', 'k', 'normals'),
  ofView('Forces', 'v', 'forces'),
  ofView('Markers', 'l', 'markers'),
  { label: 'Low bandwidth', key: 'b', get: () => stream.lowBandwidth, set: (on) => stream.setLowBandwidth(on) },
]);

function takeOrReleaseTool(): void {
  if (stream.isReplay) {
    app.reports.tell(REPLAY_IS_FIXED);
    return;
  }
  if (inHand.index !== undefined) {
    void inHand.release();
    return;
  }
  const free = tools.findFree();
  if (free >= 0) void tools.take(free);
  else if (tools.count > 0) app.reports.tell('Every instrument is in somebody else\'s hand.');
}
new Keyboard(app.motion, inHand, toggles, {
  togglePlay: () => void transport.togglePlay(),
  step: () => void transport.step(),
  stepBack: () => app.stepBack(),
  reset: () => app.reset(),
  fit: () => app.fit(),
  takeOrRelease: takeOrReleaseTool,
  setMode: (mode) => modeBar.setMode(mode),
  changeSize: (by) => pointer.changeSize(by),
  togglePanel: () => drawer.toggle(),
  toggleHelp: () => help.toggle(),
  leave: () => (help.isShown ? help.hide() : modeBar.setMode('hand')),
});

const onClick = (id: string, run: () => void) => element(id).addEventListener('click', () => {
  element(id).blur();  // so that the space bar keeps its meaning
  run();
});
onClick('b-play', () => void transport.togglePlay());
onClick('b-step', () => void transport.step());
onClick('b-back', () => app.stepBack());
onClick('b-reset', () => app.reset());
onClick('b-fit', () => app.fit());
onClick('b-panel', () => drawer.toggle());
onClick('b-help', () => help.toggle());

// The last touch tells more than the machine: a tablet may have a mouse.
window.addEventListener('pointerdown', (event) => document.body.classList.toggle('by-finger', event.pointerType === 'touch'), { capture: true });
document.body.classList.toggle('by-finger', matchMedia('(pointer: coarse)').matches);

modeBar.setMode('hand');
app.onReplay = (isReplay) => modeBar.setLock(isReplay ? REPLAY_IS_FIXED : '');
drawer.start();
app.start();
(window as unknown as { palpate: ScriptApi }).palpate = new ScriptApi(app, modeBar, drawer);
