package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// outcome is the result of a row for a client.
type outcome struct {
	Row      string `json:"row"`
	Kind     string `json:"kind"`
	Via      string `json:"via"`
	OK       bool   `json:"ok"`
	Text     string `json:"text"`
	Usage    int64  `json:"usage"`
	Class    string `json:"class"`
	Status   int    `json:"status"`
	Code     string `json:"code"`
	Type     string `json:"type"`
	Param    string `json:"param"`
	Message  string `json:"message"`
	Attempts int    `json:"attempts"`

	Took int64 `json:"took_ms"`

	client string
}

// ends are the outcomes of a call at the provider and through llmguard.
type ends struct{ direct, through *outcome }

// matrixRun is what a client needs to run the rows.
type matrixRun struct {
	t        *testing.T
	s        *stack
	p        *process
	client   matrixClient
	rows     []trial
	outcomes []outcome
	err      error
}

// matrixClient is a client library, with its own user.
type matrixClient struct {
	name, user string
	dir        string // of npm packages; empty for a Go client
	run        func(*matrixRun) ([]outcome, error)
}

// busy returns a model in a pool that only this client uses.
func (c matrixClient) busy() string { return "busy-" + c.user }

// alone is the model, and the pool, of one row of the client.
func (c matrixClient) alone(row trial) string {
	return "alone-" + c.user + "-" + strings.ReplaceAll(row.Name, " ", "-")
}

var matrixClients = []matrixClient{
	npmClient("openai on Node 22", "node22", "node", "openai22.matrix.mjs"),
	npmClient("openai on Node 20", "node20", "node20", "openai.matrix.mjs"),
	npmClient("AI SDK", "ai", "node", "ai.matrix.mjs"),
	npmClient("LangChain", "langchain", "node", "langchain.matrix.mjs"),
	{name: "go-openai", user: "go", run: func(m *matrixRun) ([]outcome, error) { return m.golang(goOpenAI), nil }},
	{name: "openai-go", user: "openai-go", run: func(m *matrixRun) ([]outcome, error) { return m.golang(openaiGo), nil }},
}

func npmClient(name, user, dir, file string) matrixClient {
	return matrixClient{name, user, dir, func(m *matrixRun) ([]outcome, error) { return m.node(dir, file) }}
}

// TestMatrix makes the calls of all rows with every client, directly at the provider and
// through llmguard, and compares the outcomes. The short form uses some rows only.
func TestMatrix(t *testing.T) {
	t.Parallel()
	s := matrixStack(t)
	p := s.proxy()
	s.worker()
	rows := matrix()
	ran := make([]matrixRun, len(matrixClients))
	var all sync.WaitGroup
	for i, c := range matrixClients {
		m := &ran[i]
		*m = matrixRun{t: t, s: s, p: p, client: c, rows: slices.Clone(rows)}
		for i := range m.rows {
			switch {
			case m.rows[i].Busy:
				m.rows[i].Model = c.busy()
			case m.rows[i].Alone:
				m.rows[i].Model = c.alone(m.rows[i])
			}
		}
		all.Go(func() { m.outcomes, m.err = c.run(m) })
	}
	redistest.Wait(t, all.Wait)
	differ, compared := map[string]bool{}, 0
	for _, m := range ran {
		t.Run(m.client.name, func(t *testing.T) {
			if m.client.dir != "" {
				needNode(t, m.client.dir)
			}
			if m.err != nil {
				t.Fatal(m.err)
			}
			compare(t, rows, m.outcomes, differ)
			compared++
		})
	}
	for _, row := range rows {
		if row.rule != "" && !t.Failed() && compared == len(matrixClients) && !differ[row.Name] {
			t.Errorf("%s: rule %s makes no difference to any client", row.Name, row.rule)
		}
	}
}

// matrixStack has a user and a pool for each client.
func matrixStack(t *testing.T) *stack {
	t.Helper()
	var pools, users, prices strings.Builder
	for _, c := range matrixClients {
		models := []string{c.busy()}
		for _, row := range matrix() {
			if row.Alone {
				models = append(models, c.alone(row))
			}
		}
		for _, model := range models {
			fmt.Fprintf(&pools, "{id: %s, models: [%s]}, ", model, model)
			fmt.Fprintf(&prices, "  - {model: %s, prices: [{input: 1, output: 2}]}\n", model)
		}
		fmt.Fprintf(&users, "      - {id: %s, keys: [{id: k-%s, hash: \"${key:%s}\"}]}\n", c.user, c.user, c.user)
	}
	return newStack(t, fakeprovider.Options{}, "prices:\n"+prices.String()+`
providers:
  - id: openai
    base_url: "${provider}"
    api_key: "${provider_key}"
    pools: [`+pools.String()+`{id: rest}]
orgs:
  - id: acme
    limits: [{name: w, subject: org, metric: cost, amount: $1000, window: 1h}]
    users:
`+users.String())
}

// compare checks the outcomes of one client, and adds the rows that differ.
func compare(t *testing.T, rows []trial, outcomes []outcome, differ map[string]bool) {
	t.Helper()
	found := map[string]*ends{}
	for i, o := range outcomes {
		key := o.Row + "/" + o.Kind
		if found[key] == nil {
			found[key] = &ends{}
		}
		if o.Via == "direct" {
			found[key].direct = &outcomes[i]
		} else {
			found[key].through = &outcomes[i]
		}
	}
	calls := 0
	for _, row := range rows {
		for _, kind := range row.Kinds {
			e := found[row.Name+"/"+kind]
			if e == nil { // the client lacks this kind of call
				continue
			}
			if e.direct == nil || e.through == nil {
				t.Errorf("%s, %s: only %+v", row.Name, kind, e)
				continue
			}
			calls++
			direct, through := *e.direct, *e.through
			direct.Via, through.Via = "", ""
			differ[row.Name] = differ[row.Name] || direct != through
			switch {
			case row.rule == "" && direct != through:
				t.Errorf("%s, %s:\n direct  %+v\n through %+v", row.Name, kind, direct, through)
			case row.rule != "" && !row.wants(through):
				t.Errorf("%s, %s: rule %s does not hold:\n direct  %+v\n through %+v", row.Name, kind, row.rule, direct, through)
			}
		}
	}
	t.Logf("%d calls compared", calls)
	if calls < len(rows)/2 {
		t.Errorf("%d calls for %d rows", calls, len(rows))
	}
}

// node runs the rows with an npm client.
func (m *matrixRun) node(dir, file string) ([]outcome, error) {
	text, err := json.Marshal(m.rows)
	if err != nil {
		return nil, err
	}
	out, err := nodeScript{dir: dir, file: file, env: []string{
		"ROWS=" + string(text), "DIRECT_URL=" + m.s.fake.BaseURL(), "DIRECT_KEY=" + providerKey,
		"BASE_URL=" + m.p.URL, "API_KEY=" + m.s.keys[m.client.user],
	}}.run(m.t)
	if err != nil {
		return nil, err
	}
	var outcomes []outcome
	for line := range bytes.Lines(out) {
		o := outcome{client: m.client.name}
		if err := json.Unmarshal(line, &o); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}
