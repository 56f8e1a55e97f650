// Package removed says what to use instead of something that an earlier version had. Its texts are
// the ends of errors, after the name of a setting or flag.
package removed

// since is the first version without any of these. CHANGELOG.md lists them, too.
const since = " was removed in 0.2.0; "

// Parquet was a format of FOCUS exports.
const Parquet = "parquet" + since + "use csv, and convert it with DuckDB or pandas (docs/finance.md#parquet)"

// ModelsDev was a price list that the commands of prices could read.
const ModelsDev = "the importer of models.dev" + since + "use a list of litellm or genai-prices"

// MetricsPush was the export of metrics by OTLP.
const MetricsPush = "pushing metrics by OTLP" + since +
	"remove this section, and let Prometheus or a collector scrape /metrics (docs/tracing.md#metrics)"
