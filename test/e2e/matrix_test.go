package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// outcome is what a client made of a row.
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

// ends are how a call ended at the provider and through llmguard.
type ends struct{ direct, through *outcome }

// matrixRun is what a client needs to run the rows.
type matrixRun struct {
	t      *testing.T
	s      *stack
	p      *process
	client matrixClient
	rows   []trial
}

// matrixClient is a client library, with a user of its own.
type matrixClient struct {
	name, user string
	run        func(*matrixRun) []outcome
}

// busy is a model in a pool that only this client uses.
func (c matrixClient) busy() string { return "busy-" + c.user }

var matrixClients = []matrixClient{
	{"openai on Node 22", "node22", func(m *matrixRun) []outcome { return m.node("node", "openai22.matrix.mjs") }},
	{"openai on Node 20", "node20", func(m *matrixRun) []outcome { return m.node("node20", "openai.matrix.mjs") }},
	{"AI SDK", "ai", func(m *matrixRun) []outcome { return m.node("node", "ai.matrix.mjs") }},
	{"LangChain", "langchain", func(m *matrixRun) []outcome { return m.node("node", "langchain.matrix.mjs") }},
	{"go-openai", "go", func(m *matrixRun) []outcome { return m.golang(goOpenAI) }},
	{"openai-go", "openai-go", func(m *matrixRun) []outcome { return m.golang(openaiGo) }},
}

// TestMatrix makes the calls of the rows with every client, at the provider itself
// and through llmguard, and compares how they end. The long form has all rows.
func TestMatrix(t *testing.T) {
	t.Parallel()
	s := matrixStack(t)
	p := s.proxy()
	s.worker()
	rows := matrix()
	seen := &differences{rows: map[string]bool{}}
	t.Run("clients", func(t *testing.T) {
		for _, c := range matrixClients {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				m := &matrixRun{t: t, s: s, p: p, client: c, rows: slices.Clone(rows)}
				for i := range m.rows {
					if m.rows[i].Busy {
						m.rows[i].Model = c.busy()
					}
				}
				seen.add(compare(t, rows, c.run(m)))
			})
		}
	})
	for _, row := range rows {
		if row.rule != "" && !t.Failed() && seen.clients == len(matrixClients) && !seen.rows[row.Name] {
			t.Errorf("%s: rule %s makes no difference to any client", row.Name, row.rule)
		}
	}
}

// differences are the rows in which llmguard differs from the provider for a
// client, of all clients that have ended.
type differences struct {
	mu      sync.Mutex
	clients int
	rows    map[string]bool
}

func (d *differences) add(rows []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clients++
	for _, name := range rows {
		d.rows[name] = true
	}
}

// matrixStack has a user and a pool for each client.
func matrixStack(t *testing.T) *stack {
	t.Helper()
	var pools, users, prices strings.Builder
	for _, c := range matrixClients {
		fmt.Fprintf(&pools, "{id: %s, models: [%s]}, ", c.busy(), c.busy())
		fmt.Fprintf(&prices, "  - {model: %s, prices: [{input: 1, output: 2}]}\n", c.busy())
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

// compare checks the outcomes of one client, and returns the rows in which they
// differ.
func compare(t *testing.T, rows []trial, outcomes []outcome) (differ []string) {
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
			if e == nil { // the client has no such call
				continue
			}
			if e.direct == nil || e.through == nil {
				t.Errorf("%s, %s: only %+v", row.Name, kind, e)
				continue
			}
			calls++
			direct, through := *e.direct, *e.through
			direct.Via, through.Via = "", ""
			if direct != through {
				differ = append(differ, row.Name)
			}
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
	return differ
}

// node runs the rows with a client from npm.
func (m *matrixRun) node(dir, file string) []outcome {
	m.t.Helper()
	text, err := json.Marshal(m.rows)
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.Command(nodeProgram(m.t, dir), file)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ROWS="+string(text), "DIRECT_URL="+m.s.fake.BaseURL(), "DIRECT_KEY="+providerKey,
		"BASE_URL="+m.p.URL, "API_KEY="+m.s.keys[m.client.user])
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		m.t.Fatalf("%v\n%s%s", err, out, stderr.Bytes())
	}
	var outcomes []outcome
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		o := outcome{client: m.client.name}
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			m.t.Fatalf("%v: %s", err, lines.Bytes())
		}
		outcomes = append(outcomes, o)
	}
	if err := lines.Err(); err != nil {
		m.t.Fatal(err)
	}
	return outcomes
}
