package blob

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"gopkg.in/ini.v1"
)

// errNoCredentials is returned when no source has credentials.
var errNoCredentials = errors.New("no AWS credentials")

// credentialTime limits a request for credentials.
const credentialTime = 5 * time.Second

// newCredentials looks for credentials like AWS's own tools: in the environment, from a web
// identity, in a profile of the shared files, and from the role of the container or the
// machine. If the URL names a profile, that is the only source.
func newCredentials(profile string) *credentials.Credentials {
	file := &credentials.FileAWSCredentials{Profile: profile}
	if profile != "" {
		return credentials.New(&sources{all: []credentials.Provider{file}})
	}
	env := &credentials.EnvAWS{}
	role := &credentials.IAM{Client: &http.Client{
		Timeout:   credentialTime,
		Transport: &http.Transport{Proxy: proxyUnlessLocal, DisableKeepAlives: true},
	}}
	all := []credentials.Provider{env, file, role}
	switch {
	case os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		all = []credentials.Provider{env, role, file}
	case os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "", os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
	case os.Getenv("AWS_EC2_METADATA_DISABLED") == "true":
		all = []credentials.Provider{env, file}
	}
	return credentials.New(&sources{all: all})
}

// proxyUnlessLocal uses the environment's proxy, except for the machine's own metadata service.
func proxyUnlessLocal(r *http.Request) (*url.URL, error) {
	if net.ParseIP(r.URL.Hostname()).IsLinkLocalUnicast() {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// sources uses the first source that has credentials. If none has, it returns the reason, where
// minio's own chain would send unsigned requests.
type sources struct {
	all  []credentials.Provider
	used credentials.Provider
}

// RetrieveWithCredContext returns the credentials of the first source that has some.
func (s *sources) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	failed := errNoCredentials
	for _, source := range s.all {
		v, err := source.RetrieveWithCredContext(cc)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			s.used = source
			return v, nil
		}
		if err != nil {
			failed = fmt.Errorf("%w; %w", failed, hideLine(err))
		}
	}
	return credentials.Value{}, failed
}

// hideLine replaces an error that quotes a line of a credentials file.
func hideLine(err error) error {
	if ini.IsErrDelimiterNotFound(err) {
		return errors.New("a line of the AWS credentials or config file has no = sign")
	}
	return err
}

// Retrieve is RetrieveWithCredContext without a context.
func (s *sources) Retrieve() (credentials.Value, error) { return s.RetrieveWithCredContext(nil) }

// IsExpired reports whether the credentials must be fetched again.
func (s *sources) IsExpired() bool { return s.used == nil || s.used.IsExpired() }
