// Package grafana builds llmguard's dashboards from Go values, so that panels
// share their conventions and tests can read every query. It is not part of
// the running program; dashboards/*.json is what Grafana loads.
package grafana

//go:generate go test -run ^TestDashboards$ -update .

// Dashboard is the part of Grafana's dashboard model that we use (classic
// schema, version 39).
type Dashboard struct {
	UID           string      `json:"uid"`
	Title         string      `json:"title"`
	Description   string      `json:"description"`
	Tags          []string    `json:"tags"`
	Editable      bool        `json:"editable"`
	GraphTooltip  int         `json:"graphTooltip"` // 1: shared crosshair
	Refresh       string      `json:"refresh"`
	SchemaVersion int         `json:"schemaVersion"`
	Time          TimeRange   `json:"time"`
	Timezone      string      `json:"timezone"`
	Templating    Templating  `json:"templating"`
	Links         []Link      `json:"links"`
	Annotations   Annotations `json:"annotations"`
	Panels        []Panel     `json:"panels"`
}

// Link leads to all other dashboards with the tags, and takes time and variables along.
type Link struct {
	Type        string   `json:"type"` // dashboards
	Title       string   `json:"title"`
	Tags        []string `json:"tags"`
	AsDropdown  bool     `json:"asDropdown"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
}

// Annotations holds the marks on a dashboard's graphs.
type Annotations struct {
	List []Annotation `json:"list"`
}

// Annotation marks the times that a query returns, in milliseconds.
type Annotation struct {
	Name            string `json:"name"`
	Datasource      Source `json:"datasource"`
	Enable          bool   `json:"enable"`
	IconColor       string `json:"iconColor"`
	Expr            string `json:"expr"`
	UseValueForTime bool   `json:"useValueForTime"`
	TitleFormat     string `json:"titleFormat"`
	TextFormat      string `json:"textFormat"`
}

// TimeRange is what a dashboard shows at first.
type TimeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Templating holds a dashboard's variables.
type Templating struct {
	List []Variable `json:"list"`
}

// Variable is a choice at the top of a dashboard.
type Variable struct {
	Name       string  `json:"name"`
	Label      string  `json:"label"`
	Type       string  `json:"type"` // datasource or query
	Query      any     `json:"query"`
	Datasource *Source `json:"datasource,omitempty"`
	Definition string  `json:"definition,omitempty"`
	Refresh    int     `json:"refresh"` // 2: when the time range changes
	Multi      bool    `json:"multi"`
	IncludeAll bool    `json:"includeAll"`
	AllValue   string  `json:"allValue,omitempty"`
	Current    any     `json:"current"`
	Hide       int     `json:"hide"`
}

// Source names the data source, always through the dashboard's variable.
type Source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Panel is a row, a number or a graph.
type Panel struct {
	ID          int          `json:"id"`
	Type        string       `json:"type"` // row, stat or timeseries
	Title       string       `json:"title"`
	Description string       `json:"description,omitempty"`
	GridPos     GridPos      `json:"gridPos"`
	Datasource  *Source      `json:"datasource,omitempty"`
	Targets     []Target     `json:"targets,omitempty"`
	FieldConfig *FieldConfig `json:"fieldConfig,omitempty"`
	Options     any          `json:"options,omitempty"`
	Collapsed   *bool        `json:"collapsed,omitempty"`
	Panels      *[]Panel     `json:"panels,omitempty"`
}

// GridPos places a panel; a dashboard is 24 units wide.
type GridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

// Target is one query of a panel.
type Target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	Range        bool   `json:"range"`
	Instant      bool   `json:"instant"`
	Datasource   Source `json:"datasource"`
}

// FieldConfig is how values are shown.
type FieldConfig struct {
	Defaults  FieldDefaults `json:"defaults"`
	Overrides []any         `json:"overrides"`
}

// FieldDefaults is how all values of a panel are shown.
type FieldDefaults struct {
	Unit       string         `json:"unit"`
	Decimals   *int           `json:"decimals,omitempty"`
	Min        *float64       `json:"min,omitempty"`
	NoValue    string         `json:"noValue,omitempty"`
	Color      map[string]any `json:"color"`
	Thresholds Thresholds     `json:"thresholds"`
	Custom     map[string]any `json:"custom,omitempty"`
}

// Thresholds colour a value by its size.
type Thresholds struct {
	Mode  string `json:"mode"`
	Steps []Step `json:"steps"`
}

// Step begins a colour at a value; nil is the beginning.
type Step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}
