package tracing

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// tracesPath is where a collector receives spans, below its base URL.
const tracesPath = "v1/traces"

// tracesURL returns the URL to send to: the endpoint, with tracesPath if it has no path.
func tracesURL(endpoint string) string {
	if _, rest, _ := strings.Cut(endpoint, "://"); strings.Contains(strings.TrimSuffix(rest, "/"), "/") {
		return endpoint
	}
	return strings.TrimSuffix(endpoint, "/") + "/" + tracesPath
}

// setting returns the variable for traces, or the one for all signals.
func setting(name string) variable {
	v := lookUp("OTEL_EXPORTER_OTLP_TRACES_" + name)
	if v.value == "" {
		v = lookUp("OTEL_EXPORTER_OTLP_" + name)
	}
	return v
}

// target is where and how spans are sent.
type target struct {
	url     *url.URL
	headers map[string]string
	timeout time.Duration // per request
	gzip    bool
	tls     *tls.Config // nil: Go's default
}

// exportTime is the default timeout of a request.
const exportTime = 10 * time.Second

// newTarget reads the OTEL_EXPORTER_OTLP_ variables; options take precedence. The variable for
// traces takes precedence over that for all signals.
func newTarget(o Options) (*target, error) {
	t := &target{headers: o.Headers, timeout: exportTime, gzip: setting("COMPRESSION").value == "gzip"}
	for _, read := range []func(*target, Options) error{
		(*target).readURL, (*target).readHeaders, (*target).readTimeout, (*target).readTLS,
	} {
		err := read(t, o)
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// variable is an environment variable.
type variable struct{ name, value string }

func lookUp(name string) variable { return variable{name, strings.TrimSpace(os.Getenv(name))} }

// readURL determines the URL to send to. The endpoint for all signals is a base URL; the one for
// traces is used unchanged.
func (t *target) readURL(o Options) error {
	if o.Endpoint != "" {
		u, err := endpointURL(variable{"endpoint", tracesURL(o.Endpoint)})
		t.url = u
		return err
	}
	v := setting("ENDPOINT")
	v.value = cmp.Or(v.value, "https://localhost:4318")
	u, err := endpointURL(v)
	if err != nil {
		return err
	}
	if v.name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		u.Path = path.Join("/", u.Path, tracesPath)
	}
	insecure := setting("INSECURE").value
	switch {
	case strings.EqualFold(insecure, "true"):
		u.Scheme = "http"
	case insecure != "":
		u.Scheme = "https"
	}
	t.url = u
	return nil
}

// endpointURL returns scheme, host and path of an endpoint.
func endpointURL(v variable) (*url.URL, error) {
	u, err := url.Parse(v.value)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s: expected a URL such as http://otel-collector:4318", v.name)
	}
	u.Path = cmp.Or(u.Path, "/")
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}, nil
}

var headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// readHeaders parses comma-separated name=value pairs with URL-escaped values.
func (t *target) readHeaders(o Options) error {
	v := setting("HEADERS")
	if len(o.Headers) > 0 || v.value == "" {
		return nil
	}
	t.headers = map[string]string{}
	for pair := range strings.SplitSeq(v.value, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, escaped, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(escaped)
		value = strings.TrimSpace(value)
		if !found || err != nil || !headerName.MatchString(name) || strings.ContainsFunc(value, unicode.IsControl) {
			return fmt.Errorf("%s: expected name=value pairs with commas between", v.name) // values are secret
		}
		t.headers[http.CanonicalHeaderKey(name)] = value
	}
	return nil
}

func (t *target) readTimeout(Options) error {
	v := setting("TIMEOUT")
	if v.value == "" {
		return nil
	}
	n, err := strconv.Atoi(v.value)
	if err != nil || n <= 0 {
		return fmt.Errorf("%s: expected milliseconds, got %q", v.name, v.value)
	}
	t.timeout = time.Duration(n) * time.Millisecond
	return nil
}

// readTLS reads the collector's CA certificates and the client certificate.
func (t *target) readTLS(Options) error {
	config := &tls.Config{}
	authority := setting("CERTIFICATE")
	if authority.value != "" {
		pool, err := readPool(authority)
		if err != nil {
			return err
		}
		config.RootCAs = pool
	}
	cert, err := readClientCertificate()
	if err != nil {
		return err
	}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	if config.RootCAs == nil && cert == nil {
		return nil
	}
	if t.url.Scheme == "http" {
		return errors.New("there is a certificate for the collector, but its endpoint is http")
	}
	t.tls = config
	return nil
}

func readPool(v variable) (*x509.CertPool, error) {
	text, err := os.ReadFile(v.value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.name, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: %s has no certificate", v.name, v.value)
	}
	return pool, nil
}

// readClientCertificate returns nil unless both a certificate and its key are configured.
func readClientCertificate() (*tls.Certificate, error) {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		cert := lookUp(prefix + "CLIENT_CERTIFICATE")
		key := lookUp(prefix + "CLIENT_KEY")
		if cert.value == "" || key.value == "" {
			continue
		}
		pair, err := tls.LoadX509KeyPair(cert.value, key.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cert.name, err)
		}
		return &pair, nil
	}
	return nil, nil
}
