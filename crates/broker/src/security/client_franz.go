// franz-go: options of kgo.NewClient.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func secureOptions() ([]kgo.Opt, error) {
	pem, err := os.ReadFile("{ca}")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in {ca}")
	}
	return []kgo.Opt{
		kgo.SeedBrokers({seeds}),
		kgo.DialTLSConfig(&tls.Config{RootCAs: roots}),
		kgo.SASL(scram.Auth{User: "{user}", Pass: "{password}"}.AsSha512Mechanism()),
	}, nil
}
