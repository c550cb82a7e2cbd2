// Sends metrics of every kind, spans and log records by every protocol of the JavaScript SDK.
// Arguments: the address of gRPC, the address of HTTP. Writes {signal: base64 of the expected request} as JSON.
import { createRequire } from 'node:module';
const require = createRequire(process.env.PACKAGES + '/');
const { resourceFromAttributes } = require('@opentelemetry/resources');
const { MeterProvider, MetricReader, AggregationType, InstrumentType } = require('@opentelemetry/sdk-metrics');
const { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } = require('@opentelemetry/sdk-trace-base');
const { LoggerProvider, InMemoryLogRecordExporter, SimpleLogRecordProcessor } = require('@opentelemetry/sdk-logs');
const transformer = require('@opentelemetry/otlp-transformer');
const { ROOT_CONTEXT, trace } = require('@opentelemetry/api');

const [grpc, http] = process.argv.slice(2);
const TEXTS = ['', 'plain', 'ünïcödé 🚀', 'quote " and \\ and \u0000', 'x'.repeat(10000)];
const attributes = { empty: '', yes: true, integer: 42, negative: -7, double: 0.1, list: ['a', 'b'], numbers: [1, 2.5] };
TEXTS.forEach((text, index) => { attributes[`text.${index}`] = text; });
const resource = resourceFromAttributes({ 'service.name': 'javascript', ...attributes });

class Reader extends MetricReader {
  async onForceFlush() {}
  async onShutdown() {}
}
const reader = new Reader();
const meters = new MeterProvider({
  resource, readers: [reader],
  views: [{ instrumentName: 'exponential', aggregation: { type: AggregationType.EXPONENTIAL_HISTOGRAM } }],
});
const meter = meters.getMeter('scope', '1.2');
const counter = meter.createCounter('counter', { unit: 'By', description: 'bytes' });
const upDown = meter.createUpDownCounter('up_down');
const gauge = meter.createGauge('gauge');
const histogram = meter.createHistogram('histogram', { unit: 's' });
const exponential = meter.createHistogram('exponential');
meter.createObservableGauge('observable').addCallback((result) => result.observe(-0.5, attributes));
meter.createObservableCounter('observable_counter').addCallback((result) => result.observe(2 ** 40, attributes));
for (const value of [1, 2.5, 1e-9, 1e12]) {
  counter.add(value, attributes); upDown.add(-value, attributes); gauge.record(value, attributes);
  histogram.record(value, attributes); exponential.record(value, attributes);
}
const { resourceMetrics } = await reader.collect();

const spans = new InMemorySpanExporter();
const tracer = new BasicTracerProvider({ resource, spanProcessors: [new SimpleSpanProcessor(spans)] }).getTracer('scope');
const parent = tracer.startSpan('parent', { kind: 2, attributes }, ROOT_CONTEXT);
const child = tracer.startSpan('', { links: [{ context: parent.spanContext(), attributes }] }, trace.setSpan(ROOT_CONTEXT, parent));
child.addEvent('event', attributes); child.setStatus({ code: 2, message: 'failed' }); child.recordException(new Error('x'));
child.end(); parent.end();

const records = new InMemoryLogRecordExporter();
const logger = new LoggerProvider({ resource, processors: [new SimpleLogRecordProcessor({ exporter: records })] }).getLogger('scope');
for (const body of TEXTS) logger.emit({ body, severityNumber: 9, severityText: 'INFO', attributes });
logger.emit({ body: { nested: { list: [1, 'two', [3]] } }, context: trace.setSpan(ROOT_CONTEXT, parent) });
await new Promise((resolve) => setTimeout(resolve, 100)); // the processor exports after the resource is complete

const sent = {
  metrics: [transformer.ProtobufMetricsSerializer, resourceMetrics, 'OTLPMetricExporter'],
  traces: [transformer.ProtobufTraceSerializer, spans.getFinishedSpans(), 'OTLPTraceExporter'],
  logs: [transformer.ProtobufLogsSerializer, records.getFinishedLogRecords(), 'OTLPLogExporter'],
};
const expected = {};
for (const [signal, [serializer, data, name]] of Object.entries(sent)) {
  expected[signal] = Buffer.from(serializer.serializeRequest(data)).toString('base64');
  const stem = signal === 'traces' ? 'trace' : signal;
  for (const protocol of ['grpc', 'proto', 'http']) {
    const exporters = require(`@opentelemetry/exporter-${stem}-otlp-${protocol}`);
    const exporter = new (exporters[name] ?? exporters[name.replace('LogExporter', 'LogsExporter')])({
      url: protocol === 'grpc' ? `http://${grpc}` : `http://${http}/v1/${signal}`, compression: protocol === 'proto' ? 'gzip' : 'none',
    });
    await new Promise((resolve, reject) => exporter.export(data, (result) => (result.code ? reject(result.error) : resolve())));
    await exporter.shutdown();
  }
}
console.log(JSON.stringify(expected));
