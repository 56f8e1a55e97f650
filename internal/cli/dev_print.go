package cli

import (
	"io"
	"text/template"
)

// devRunning is what dev says of itself when it is ready.
type devRunning struct {
	URL, Admin, Config, Provider, Store string
	Command                             string // how this program is called here
	devValues
}

// Owner is the user whose key is shown first.
func (r devRunning) Owner() string { return r.users()[0] }

// Runaway is the demo's user that spends too much, and RunawayOrg its org.
func (devRunning) Runaway() string    { return runaway }
func (devRunning) RunawayOrg() string { return runawayOrg }

// Call is a request's body.
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

One call, with its cost and what is left in the headers:
  curl -i {{.URL}}/chat/completions -H 'Authorization: Bearer {{.Secret .Owner}}' -H 'Content-Type: application/json' -d '{{.Call}}'

A stream:
  curl -N {{.URL}}/chat/completions -H 'Authorization: Bearer {{.Secret .Owner}}' -H 'Content-Type: application/json' -d '{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"Write me a story"}]}'
{{if .Demo}}
50 users in 5 orgs are calling. A program of {{.Runaway}} in {{.RunawayOrg}} is out of control; find it in the console
(sign in with the admin key), or from another terminal:
  {{.Command}} top -c {{.Config}}
  {{.Command}} usage --org {{.RunawayOrg}} --by user -c {{.Config}}
  {{.Command}} limits get --org {{.RunawayOrg}} --user {{.Runaway}} -c {{.Config}}
{{else}}
Over the limit: bob may spend $0.0001 in 10 s, so his calls wait in the queue instead of failing:
  for i in 1 2 3; do curl -s -o /dev/null -w '%{http_code} after %{time_total}s\n' {{.URL}}/chat/completions -H 'Authorization: Bearer {{.Secret "bob"}}' -H 'Content-Type: application/json' -d '{{.Call}}'; done

What happens now, and what was spent, from another terminal:
  {{.Command}} top -c {{.Config}}
  {{.Command}} usage --org dev -c {{.Config}}
{{end}}
An org, a user and a key of your own, from another terminal:
  export LLMGUARD_ADMIN_URL={{.Admin}} LLMGUARD_ADMIN_KEY={{.Secret "operator"}}
  {{.Command}} orgs create acme && {{.Command}} users create carol --org acme && {{.Command}} keys create --org acme --user carol

Ctrl-C ends it.

`))

func welcome(w io.Writer, r devRunning) error { return welcomeText.Execute(w, r) }
