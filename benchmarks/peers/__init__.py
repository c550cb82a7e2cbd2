"""Programs beside a collector that is measured, as processes of their own."""
