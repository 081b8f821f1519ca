import { defineConfig } from 'vite';
import react from '@vitejs/plugin-react';

export default defineConfig({
  plugins: [react()],
  define: { 'process.env': {}, 'process.env.NODE_ENV': '"production"' },
  build: {
    chunkSizeWarningLimit: 50000,
    // @grafana/plugin-compat imports names that React 19 no longer has.
    rolldownOptions: { shimMissingExports: true },
  },
});
