package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"
)

func secret(t testing.TB, text string) Secret {
	t.Helper()
	s, err := ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The first secret is from the published test vector.
const (
	secret1 = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secret2 = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
)

// TestSignatureOfTheSpecification checks the vector published by Standard Webhooks.
func TestSignatureOfTheSpecification(t *testing.T) {
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	h := http.Header{}
	sign(h, []Secret{secret(t, secret1), secret(t, secret2)}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	other := secret(t, secret2).signature("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if got := h.Get("webhook-signature"); got != want+" "+other || other == want {
		t.Errorf("signatures %q, want %q and one of the other secret", got, want)
	}
	if h.Get("webhook-id") != "msg_p5jXN8AQM9LWM0D4loKWxJek" || h.Get("webhook-timestamp") != "1614265330" {
		t.Errorf("headers %v", h)
	}
}

func TestSecretsAreStrongAndSilent(t *testing.T) {
	for _, text := range []string{
		"", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_not base64 at all, sorry!!!!!!!!",
		"whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
	} {
		if _, err := ParseSecret(text); !errors.Is(err, ErrSecret) {
			t.Errorf("%q is taken: %v", text, err)
		}
	}
	for _, form := range []string{"%v", "%s", "%#v", "%+v"} {
		if got := fmt.Sprintf(form, secret(t, secret1)); got != "[secret]" {
			t.Errorf("%s prints %q", form, got)
		}
	}
}
