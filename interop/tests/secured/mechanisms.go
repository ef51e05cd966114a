package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func secureOptions() ([]kgo.Opt, error) {
	pem, err := os.ReadFile(os.Getenv("CA_FILE"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	user, secret := os.Getenv("SASL_USER"), os.Getenv("SECRET")
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: user, Pass: secret}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: user, Pass: secret}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: user, Pass: secret}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: secret}.AsMechanism(),
	}
	return []kgo.Opt{
		kgo.SeedBrokers(os.Getenv("BOOTSTRAP")),
		kgo.DialTLSConfig(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}),
		kgo.SASL(mechanisms[os.Getenv("MECHANISM")]),
	}, nil
}
