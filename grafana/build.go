package grafana

import "fmt"

// source refers to the data source chosen at the top of the dashboard.
var source = Source{Type: "prometheus", UID: "${datasource}"}

// builder lays panels out in rows, left to right.
type builder struct {
	panels  []Panel
	x, y, h int
}

const gridWidth = 24

// row starts a titled section.
func (b *builder) row(title string) {
	b.newLine()
	no := false
	b.add(Panel{Type: "row", Title: title, Collapsed: &no, Panels: &[]Panel{}}, gridWidth, 1)
	b.newLine()
}

func (b *builder) newLine() {
	b.x = 0
	b.y = b.y + b.h
	b.h = 0
}

func (b *builder) add(p Panel, w, h int) {
	if b.x+w > gridWidth {
		b.newLine()
	}
	p.ID = len(b.panels) + 1
	p.GridPos = GridPos{H: h, W: w, X: b.x, Y: b.y}
	b.panels = append(b.panels, p)
	b.x, b.h = b.x+w, max(b.h, h)
}

// query is one line of a graph.
type query struct{ expr, legend string }

// stat adds a single number. It turns orange and red at the two values, when
// they are given.
func (b *builder) stat(title, about, unit, expr string, warnAndBad ...float64) {
	steps := []Step{{Color: "green"}}
	for i, color := range []string{"orange", "red"} {
		if i < len(warnAndBad) {
			steps = append(steps, Step{Color: color, Value: &warnAndBad[i]})
		}
	}
	b.add(Panel{
		Type: "stat", Title: title, Description: about, Datasource: &source,
		Targets: targets(query{expr, title}),
		FieldConfig: &FieldConfig{Overrides: []any{}, Defaults: FieldDefaults{
			Unit: unit, NoValue: "0",
			Color:      map[string]any{"mode": "thresholds"},
			Thresholds: Thresholds{Mode: "absolute", Steps: steps},
		}},
		Options: map[string]any{
			"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
			"colorMode":     "value", "graphMode": "area", "textMode": "auto", "justifyMode": "auto", "orientation": "auto",
		},
	}, 4, 4)
}

// graph adds a time series panel, stacked when the parts add up to a whole.
func (b *builder) graph(title, about, unit string, stacked bool, queries ...query) {
	zero := 0.0
	fill := 10
	stack := "none"
	if stacked {
		fill, stack = 30, "normal"
	}
	b.add(Panel{
		Type: "timeseries", Title: title, Description: about, Datasource: &source,
		Targets: targets(queries...),
		FieldConfig: &FieldConfig{Overrides: []any{}, Defaults: FieldDefaults{
			Unit: unit, Min: &zero, NoValue: "none",
			Color:      map[string]any{"mode": "palette-classic"},
			Thresholds: Thresholds{Mode: "absolute", Steps: []Step{{Color: "green"}}},
			Custom: map[string]any{
				"drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1, "fillOpacity": fill,
				"showPoints": "never", "spanNulls": false, "stacking": map[string]any{"mode": stack, "group": "A"},
			},
		}},
		Options: map[string]any{
			"legend":  map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}},
			"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
		},
	}, 8, 8)
}

func targets(queries ...query) []Target {
	out := make([]Target, len(queries))
	for i, q := range queries {
		out[i] = Target{
			RefID: fmt.Sprintf("%c", 'A'+i), Expr: q.expr, LegendFormat: q.legend, Range: true,
			Datasource: source,
		}
	}
	return out
}

// choice is a variable whose values come from Prometheus.
func choice(name, label, values string) Variable {
	return Variable{
		Name: name, Label: label, Type: "query", Datasource: &source, Definition: values,
		Query:   map[string]any{"query": values, "refId": "variable-" + name},
		Refresh: 2, Multi: true, IncludeAll: true, AllValue: ".*", Current: map[string]any{"text": "All", "value": "$__all"},
	}
}

// orgVariable chooses orgs.
func orgVariable() Variable {
	return choice("org", "Org", `label_values(llmguard_guard_org_admissions_total{job=~"$job"}, org)`)
}

// variables are the choices every dashboard offers.
func variables() Templating {
	return Templating{List: []Variable{
		{
			Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1,
			Current: map[string]any{},
		},
		choice("job", "Job", `label_values(llmguard_guard_settle_errors_total, job)`),
		choice("instance", "Process", `label_values(llmguard_guard_settle_errors_total{job=~"$job"}, instance)`),
	}}
}
