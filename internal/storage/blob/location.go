package blob

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// location is the parsed URL of a bucket.
type location struct {
	bucket    string
	region    string
	endpoint  string
	pathStyle bool
	profile   string
	anonymous bool
	header    http.Header // how objects are encrypted
}

// parseLocation parses s3://bucket?region=...; AWS environment variables provide what is
// missing.
func parseLocation(where string) (location, error) {
	l := location{header: http.Header{}}
	u, err := url.Parse(where)
	if err != nil {
		return l, fmt.Errorf("%s is not a URL", hideQuery(where))
	}
	l.bucket = u.Host
	if u.Scheme != "s3" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
		return l, fmt.Errorf("%s is neither a directory nor the URL of a bucket, s3://bucket?region=r", hideQuery(where))
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return l, fmt.Errorf("%s: its query cannot be read", hideQuery(where))
	}
	for name, values := range query {
		err := l.set(name, values[0])
		if err != nil {
			return l, err
		}
	}
	l.endpoint = cmp.Or(l.endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	l.region = cmp.Or(l.region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if l.region == "" {
		return l, errors.New("the bucket needs a region: s3://bucket?region=eu-west-1, or AWS_REGION")
	}
	return l, nil
}

// set sets one parameter of the URL.
func (l *location) set(name, value string) error {
	var err error
	switch name {
	case "region":
		l.region = value
	case "endpoint":
		l.endpoint = value
	case "profile":
		l.profile = value
	case "s3ForcePathStyle", "use_path_style":
		l.pathStyle, err = strconv.ParseBool(value)
	case "anonymous":
		l.anonymous, err = strconv.ParseBool(value)
	case "ssetype":
		l.header.Set("X-Amz-Server-Side-Encryption", value)
	case "kmskeyid":
		l.header.Set("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", value)
	default:
		return fmt.Errorf("unknown parameter %q of the bucket's URL; known: region, endpoint, s3ForcePathStyle, profile, "+
			"anonymous, ssetype and kmskeyid", name)
	}
	if err != nil {
		return fmt.Errorf("parameter %s of the bucket's URL: expected true or false, got %q", name, value)
	}
	return nil
}

// url returns the address of the bucket's objects.
func (l *location) url() (*url.URL, error) {
	endpoint := cmp.Or(l.endpoint, awsEndpoint(l.region))
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the bucket's endpoint: expected a URL such as https://minio:9000")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the bucket's endpoint may have only scheme, host and path")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	if l.pathStyle || !l.hasHost(u) {
		u.Path += "/" + l.bucket
	} else {
		u.Host = l.bucket + "." + u.Host
	}
	return u, nil
}

// hasHost reports whether the bucket can have its own host name below the endpoint's: not if
// that is an IP address, and not if a certificate would not match.
func (l *location) hasHost(endpoint *url.URL) bool {
	if net.ParseIP(endpoint.Hostname()) != nil {
		return false
	}
	return endpoint.Scheme == "http" || !strings.Contains(l.bucket, ".")
}

func awsEndpoint(region string) string {
	host := "https://s3." + region + ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		host += ".cn"
	}
	return host
}

func hideQuery(where string) string {
	name, _, _ := strings.Cut(where, "?")
	return name
}

// openBucket opens the bucket at a URL.
func openBucket(where string) (*bucket, error) {
	l, err := parseLocation(where)
	if err != nil {
		return nil, err
	}
	endpoint, err := l.url()
	if err != nil {
		return nil, err
	}
	client := &s3Client{
		http: newHTTPClient(), endpoint: endpoint, region: l.region,
		tries: s3Tries, pause: s3Pause, limit: s3Limit,
	}
	if !l.anonymous {
		client.keys = newCredentials(l.profile)
	}
	return &bucket{s3: client, encryption: l.header}, nil
}

// newHTTPClient returns a client that follows no redirects, because a signature is valid for
// one host only.
func newHTTPClient() *http.Client {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       time.Minute,
		TLSHandshakeTimeout:   s3DialTime,
		ResponseHeaderTimeout: s3HeaderTime,
		DialContext:           (&net.Dialer{Timeout: s3DialTime}).DialContext,
		DisableCompression:    true, // blobs are read as stored
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, CheckRedirect: stay}
}
