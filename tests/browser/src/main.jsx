// Shows the board /boards/<uid>.json of ?uid=, over the time ?from= to ?to=.
import React from 'react';
import { createRoot } from 'react-dom/client';
import { MemoryRouter } from 'react-router-dom';
import { ThemeContext, createTheme } from '@grafana/data';
import { config } from '@grafana/runtime';
import { sceneUtils } from '@grafana/scenes';
import { GlobalStyles, PortalContainer } from '@grafana/ui';
import { PLUGINS } from './panels.jsx';
import { registerStandards } from './registries.js';
import { startRuntime } from './runtime.js';
import { panelStates, sceneOf } from './scene.js';

let scene;

// Grafana's own bars above a board take about this much of the screen.
function Bars({ title, theme }) {
  const style = { height: 80, padding: '10px 16px', color: theme.colors.text.primary, background: theme.colors.background.primary };
  return <div style={style}>{title}</div>;
}

async function start() {
  registerStandards();
  Object.entries(PLUGINS).forEach(([pluginId, plugin]) => sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin }));
  startRuntime(PLUGINS, () => scene);
  const theme = createTheme({ colors: { mode: 'dark' } });
  config.theme2 = theme;
  const asked = new URLSearchParams(location.search);
  const board = await (await fetch(`/boards/${asked.get('uid')}.json`)).json();
  scene = sceneOf(board, asked.get('from'), asked.get('to'));
  window.panelStates = () => panelStates(scene);
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}>
      <MemoryRouter>
        <GlobalStyles />
        <Bars title={board.title} theme={theme} />
        <div style={{ background: theme.colors.background.canvas, minHeight: '100%', padding: 16 }}>
          <scene.Component model={scene} />
        </div>
        <PortalContainer />
      </MemoryRouter>
    </ThemeContext.Provider>,
  );
}

start().catch((error) => {
  document.body.innerText = error.stack;
  throw error;
});
