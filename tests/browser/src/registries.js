// What Grafana's application registers at its start: field options and transformations.
import {
  displayNameOverrideProcessor, identityOverrideProcessor, numberOverrideProcessor, standardEditorsRegistry,
  standardFieldConfigEditorRegistry, standardTransformers, standardTransformersRegistry, stringOverrideProcessor,
  thresholdsOverrideProcessor, unitOverrideProcessor, valueMappingsOverrideProcessor,
} from '@grafana/data';

const FIELD_OPTIONS = {
  unit: unitOverrideProcessor,
  min: numberOverrideProcessor,
  max: numberOverrideProcessor,
  decimals: numberOverrideProcessor,
  displayName: displayNameOverrideProcessor,
  noValue: stringOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
  color: identityOverrideProcessor,
  links: identityOverrideProcessor,
};

export function fieldOption(id, category, process, defaultValue) {
  return {
    id, path: id, name: id, description: '', category: [category], process, defaultValue, settings: {},
    shouldApply: () => true, override: () => null, editor: () => null,
  };
}

export function registerStandards() {
  standardEditorsRegistry.setInit(() => []);
  standardFieldConfigEditorRegistry.setInit(() =>
    Object.entries(FIELD_OPTIONS).map(([id, process]) => fieldOption(id, 'Standard options', process)));
  const byId = Object.fromEntries(Object.values(standardTransformers).map((t) => [t.id, t]));
  standardTransformersRegistry.setInit(() =>
    Object.values(byId).map((t) => ({ id: t.id, name: t.name, transformation: async () => t, editor: () => null })));
}
