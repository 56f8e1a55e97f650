package config

import (
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// kinds are the forms of texts that kind tags name, for single texts and for the elements of lists.
var kinds = map[string]func(text string) error{
	"id":           checkID,
	"address":      checkHostPort,
	"label":        settings.CheckLabelName,
	"label source": checkLabelSource,
	"labels":       checkAgentsWord,
	"pattern":      checkPattern,
	"credential":   checkCredential,
	"endpoint":     oneOf("endpoint", endpoints),
	"dialect":      checkDialect,
	"event":        oneOf("event", eventTypes),
	"path":         checkPath,
	"method":       checkMethod,
	"scope":        checkScope,
	"zone":         checkZone,
	"money":        checkMoney,
	"host name":    checkHostName,
	"host":         checkHost,
	"key prefix":   checkRedisPrefix,
	"URL":          checkPublicURL,
	"base URL":     checkBaseURL,
	"collector":    checkCollector,
	"origin":       checkOrigin,
}

// checkKind checks a text against the form in its field's kind tag.
func checkKind(kind, text string) error {
	if text == "" {
		return nil // where it may be empty
	}
	return kinds[kind](text)
}

// checkID accepts ids, and suggests one for other texts.
func checkID(text string) error {
	if idForm.MatchString(text) {
		return nil
	}
	slug := strings.Trim(notIDForm.ReplaceAllString(strings.ToLower(text), "-"), "-")
	if idForm.MatchString(slug) {
		return fmt.Errorf("%s is not an id (1 to 64 of a-z, 0-9, _ and -); did you mean %q?", quote(text), slug)
	}
	return fmt.Errorf("%s is not an id (1 to 64 of a-z, 0-9, _ and -)", quote(text))
}

var (
	idForm    = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	notIDForm = regexp.MustCompile(`[^a-z0-9_-]+`)
)

// checkDialect accepts the kinds of providers.
func checkDialect(text string) error {
	if providers.DialectOf(text) == nil {
		return errors.New(wrongChoice(text, providers.Kinds(nil)))
	}
	return nil
}

// checkPattern refuses what is neither a name nor a pattern.
func checkPattern(text string) error {
	if strings.ContainsAny(text, " ,\t?[]{}()|^$\\") || strings.Contains(text, ".*.") {
		return fmt.Errorf("expected one name, or a pattern with * for any characters, got %s; write several as a list, "+
			"and no regular expressions", quote(text))
	}
	return nil
}

// oneOf returns the check of patterns that must match one of the known names.
func oneOf(what string, known []string) func(string) error {
	return func(text string) error {
		if err := checkPattern(text); err != nil {
			return err
		}
		if !slices.ContainsFunc(known, func(name string) bool { return providers.Match(text, name) }) {
			return fmt.Errorf("there is no %s %q%s", what, text, settings.Hint(text, known))
		}
		return nil
	}
}

// endpoints are the endpoint names that limits can match: those of calls, and of what else costs money.
var endpoints = func() []string {
	names := []string{"holds"}
	for _, ep := range wire.Endpoints() {
		names = append(names, string(ep))
	}
	for _, op := range wire.Operations() {
		if op.Costs() {
			names = append(names, op.Object.Name())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}()

// scopes are what keys can be used for.
var scopes = func() []string {
	names := append([]string{
		"calls", "jobs", "files", "batches", "usage", "runs", "limit_requests", "limit_requests.org",
	}, endpoints...)
	for _, o := range wire.Objects() {
		if o.Path != "" && !slices.Contains(names, o.Scope) {
			names = append(names, o.Scope)
		}
	}
	return names
}()

func checkScope(text string) error {
	if !slices.Contains(scopes, text) {
		return fmt.Errorf("there is no scope %q%s; the scopes are %s", text, settings.Hint(text, scopes),
			strings.Join(scopes, ", "))
	}
	return nil
}

func checkMethod(text string) error {
	if !slices.Contains(servedMethods, text) {
		return fmt.Errorf("there is no method %q%s; the methods are %s", text,
			settings.Hint(strings.ToUpper(text), servedMethods), strings.Join(servedMethods, ", "))
	}
	return nil
}

// checkPath checks that a pattern of paths can match a request that is served.
func checkPath(text string) error {
	fixed, _, open := strings.Cut(text, "*")
	paths := servedPaths()
	served := slices.ContainsFunc(paths, func(p string) bool {
		return fixed == p || strings.HasPrefix(fixed, p+"/") || open && strings.HasPrefix(p, fixed)
	})
	switch {
	case served:
		return checkPattern(text)
	case !strings.HasPrefix(fixed, "/"):
		return fmt.Errorf("write the path with /v1, such as /v1/jobs, or /v1/jobs* with everything below; got %s",
			quote(text))
	}
	return fmt.Errorf("no path that is served matches %s%s", quote(text), settings.Hint(fixed, paths))
}

func checkZone(text string) error {
	if _, err := time.LoadLocation(text); err != nil || text == "Local" {
		return fmt.Errorf("there is no time zone %q; names look like Europe/Berlin or UTC", text)
	}
	return nil
}

func checkMoney(text string) error {
	if q, err := settings.ParseQuantity(text); err == nil && !q.Money {
		return fmt.Errorf(`is money; did you mean "$%d"?`, q.N)
	}
	return nil
}

// checkHostName accepts names of hosts, in lower case as they are compared.
func checkHostName(text string) error {
	if text != strings.ToLower(text) || strings.ContainsAny(text, ":/*") {
		return fmt.Errorf("expected a host name in lower case, without port, got %s", quote(text))
	}
	return nil
}

// checkHost accepts a host or *. and a domain, each with or without a port.
func checkHost(text string) error {
	host, _, err := net.SplitHostPort(text)
	if err != nil {
		host = strings.Trim(text, "[]")
	}
	host = strings.TrimPrefix(host, "*.")
	if host == "" || strings.ContainsAny(host, "*/@?# ") || strings.Contains(text, "/") {
		return fmt.Errorf("expected a host such as hooks.example.com, *.example.com or hooks.example.com:8443, got %s",
			quote(text))
	}
	return nil
}

// mostPrefix is the length of the longest redis.prefix.
const mostPrefix = 32

// checkRedisPrefix: braces would change the hash tags of a cluster, and *, ? and brackets the
// patterns by which keys are found.
func checkRedisPrefix(prefix string) error {
	wrong := strings.IndexFunc(prefix, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("_-.:/", r)
	})
	switch {
	case wrong >= 0:
		return fmt.Errorf("cannot contain %q; use letters, digits and _ - . : /", []rune(prefix[wrong:])[0])
	case len(prefix) > mostPrefix:
		return fmt.Errorf("has %d characters; at most %d", len(prefix), mostPrefix)
	case strings.HasPrefix(prefix, "lg:"), strings.HasPrefix(prefix, "asynq:"):
		return errors.New("cannot begin with lg: or asynq:, as keys of deployments without a prefix do; choose another, " +
			"such as `staging:`")
	}
	return nil
}

// placeholder is a credential that was to be replaced by another text: {{KEY}}, %KEY%, env:KEY, KEY_NAME, /path, sk-...
var placeholder = regexp.MustCompile(`^(\{\{.*\}\}|<.*>|%\w+%|\$\(.*\)|\$[A-Za-z_]\w*|env:.*|os\.environ.*|` +
	`@?/(run|etc|var|home|mnt|opt|secrets)/.*|[A-Z][A-Z0-9_]*_(KEY|TOKEN|SECRET)|(?i:your|insert)[-_ ].*|.*\.\.\.)$`)

// checkCredential checks the text of a provider's key. Its errors do not repeat the text.
func checkCredential(text string) error {
	switch {
	case strings.ContainsAny(text, "\"'`“”‘’"):
		return errors.New("contains quotes; remove them, also in the environment: docker --env-file keeps them")
	case placeholder.MatchString(text):
		return errors.New("is a placeholder; write ${NAME} for an environment variable, file:/run/secrets/NAME for a " +
			"file, or the key itself")
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("contains a space, or a character that no key has; write the key alone, without Bearer")
	}
	return nil
}

// parseURL returns the URL in a text, or an error with an example if it is not http or https.
func parseURL(text, example string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("expected a URL such as %s, got %s", example, mask(quote(text)))
	}
	return u, nil
}

// checkPublicURL checks where a listener is reached.
func checkPublicURL(text string) error {
	const example = "https://llm.example.com, without user and query"
	u, err := parseURL(text, example)
	if err == nil && (u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		return fmt.Errorf("expected a URL such as %s, got %s", example, mask(quote(text)))
	}
	return err
}

// checkBaseURL checks the root of a provider's API.
func checkBaseURL(text string) error {
	u, err := parseURL(text, "https://api.openai.com/v1")
	switch {
	case err != nil:
		return err
	case u.User != nil:
		return errors.New("contains a user or password; use api_key or headers")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("has a query or fragment; use headers for constant parameters")
	}
	for _, ep := range wire.Endpoints() {
		if !ep.Traits().Foreign && strings.HasSuffix(strings.TrimRight(u.Path, "/"), ep.Path()) {
			return errors.New("has too many path segments; end it with the version segment, such as " +
				"https://api.openai.com/v1")
		}
	}
	return nil
}

// checkCollector checks the destination of spans.
func checkCollector(text string) error {
	u, err := parseURL(text, "http://otel-collector:4318")
	switch {
	case err != nil:
		return err
	case u.User != nil:
		return errors.New("contains a user or password; use headers")
	case u.Port() == "4317":
		return errors.New("port 4317 is for OTLP over gRPC; llmguard exports over HTTP, to port 4318 of the same " +
			"collector")
	}
	return nil
}

// checkOrigin checks that browsers can send this origin.
func checkOrigin(text string) error {
	u, err := url.Parse(text)
	if text != "*" && (err != nil || u.Host == "" || text != u.Scheme+"://"+strings.ToLower(u.Host)) {
		return fmt.Errorf("expected \"*\" or an origin such as https://app.example.com, in lower case and without a "+
			"path, got %s", quote(text))
	}
	return nil
}

// checkLabelSource checks a place of a label's value.
func checkLabelSource(text string) error {
	kind, name := LabelSource(text)
	switch {
	case kind == "header" && (strings.EqualFold(name, "Authorization") || strings.EqualFold(name, "Api-Key")):
		return fmt.Errorf("the header %s contains the caller's key, which must not become a label", name)
	case kind == "key" && name == "", kind == "header" && len(name) <= 64 && headerName.MatchString(name),
		kind == "body" && fieldForm.MatchString(name):
		return nil
	}
	return fmt.Errorf(`expected "header NAME", "body user", "body metadata.NAME" or key, got %s`, quote(text))
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// ownHeaders are set by llmguard or by the connection.
var ownHeaders = []string{
	"Accept-Encoding", "Authorization", "Connection", "Content-Length", "Content-Type", "Host",
	"Keep-Alive", "Openai-Organization", "Openai-Project", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func checkHeader(m *mistakes, path, name string) {
	switch canonical := textproto.CanonicalMIMEHeaderKey(name); {
	case !headerName.MatchString(name):
		m.failAt(path, "%s is not a header name", quote(name))
	case canonical == "Authorization":
		m.failAt(path, "put the credential in api_key")
	case slices.Contains(ownHeaders, canonical):
		m.failAt(path, "%s is set by llmguard itself", canonical)
	}
}
