package cli

import (
	"io"
	"strings"
	"text/template"
)

// devRunning is what dev prints once it is ready.
type devRunning struct {
	URL, Admin, Config, Provider, Store string
	Command                             string // how to run this program here
	devValues
}

// Owner returns the user whose key is shown first.
func (r devRunning) Owner() string { return r.users()[0] }

// Runaway returns the demo user that overspends, and RunawayOrg its org.
func (devRunning) Runaway() string    { return runaway }
func (devRunning) RunawayOrg() string { return runawayOrg }

// Root returns the URL without the version of the API, which some clients add themselves.
func (r devRunning) Root() string { return strings.TrimSuffix(r.URL, "/v1") }

// Call returns an example request body.
func (devRunning) Call() string {
	return `{"model":"gpt-4o-mini","max_tokens":100,"messages":[{"role":"user","content":"Say hello"}]}`
}

var welcomeText = template.Must(template.New("welcome").Parse(`llmguard is ready
  base URL   {{.URL}}
  API key    {{.Secret .Owner}}
  provider   {{.Provider}}
  store      {{.Store}}
  metrics    {{.Admin}}/metrics
  console    {{.Admin}}/console/
  admin API  {{.Admin}}/admin/v1
  admin key  {{.Secret "operator"}}
  config     {{.Config}}

Make a call; headers show its cost and what is left:
  curl -i {{.URL}}/chat/completions -H 'Authorization: Bearer {{.Secret .Owner}}' -H 'Content-Type: application/json' -d '{{.Call}}'

Stream a response:
  curl -N {{.URL}}/chat/completions -H 'Authorization: Bearer {{.Secret .Owner}}' -H 'Content-Type: application/json' -d '{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"Write me a story"}]}'
{{- if .Claude}}

Run Claude Code on it:
  ANTHROPIC_BASE_URL={{.Root}} ANTHROPIC_AUTH_TOKEN={{.Secret .Owner}} claude
{{end}}
{{- if .Demo}}
50 users in 5 orgs are calling. A runaway program of {{.Runaway}} in {{.RunawayOrg}} is spending too much. Find it in the
console (sign in with the admin key), or from another terminal:
  {{.Command}} top -c {{.Config}}
  {{.Command}} usage --org {{.RunawayOrg}} --by user -c {{.Config}}
  {{.Command}} limits get --org {{.RunawayOrg}} --user {{.Runaway}} -c {{.Config}}
{{else}}
Go over a limit: bob may spend $0.0001 per 10 s, so his calls wait in the queue instead of failing:
  for i in 1 2 3; do curl -s -o /dev/null -w '%{http_code} after %{time_total}s\n' {{.URL}}/chat/completions -H 'Authorization: Bearer {{.Secret "bob"}}' -H 'Content-Type: application/json' -d '{{.Call}}'; done

Watch live traffic and spending, from another terminal:
  {{.Command}} top -c {{.Config}}
  {{.Command}} usage --org dev -c {{.Config}}
{{end}}
Create your own org, user and key, from another terminal:
  export LLMGUARD_ADMIN_URL={{.Admin}} LLMGUARD_ADMIN_KEY={{.Secret "operator"}}
  {{.Command}} orgs create acme && {{.Command}} users create carol --org acme && {{.Command}} keys create --org acme --user carol

Press Ctrl-C to stop.

`))

func welcome(w io.Writer, r devRunning) error { return welcomeText.Execute(w, r) }
